"""The bridge's numbering against fairseq's own Dictionary and the tokenizers' own numbers, for each family."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq.data import Dictionary
from small_tokenizers import AWKWARD, FAMILIES, SENTENCES, make_tokenizer, minilm

from visual_grounding.errors import InputError
from visual_grounding.text import tokenizer_bridge
from visual_grounding.text.pretrained_tokenizer import composed
from visual_grounding.text.tokenizer_bridge import BOS, EOS, MASK, TokenizerBridge
from visual_grounding.text.words import PAD, UNKNOWN

TEXTS = [*SENTENCES, *AWKWARD]


@pytest.fixture(scope="module", params=[*FAMILIES, "minilm"])
def bridge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TokenizerBridge:
    if request.param == "minilm":
        return TokenizerBridge(str(minilm()))
    return TokenizerBridge(str(make_tokenizer(tmp_path_factory.mktemp("tokenizers") / request.param, request.param)))


def made(folder: Path, family: str) -> TokenizerBridge:
    return TokenizerBridge(str(make_tokenizer(folder / family, family)))


def load_dictionary(bridge: TokenizerBridge, folder: Path) -> Dictionary:
    (folder / "dict.txt").write_text("".join(f"{line}\n" for line in bridge.dictionary_lines()), encoding="utf-8")
    return Dictionary.load(str(folder / "dict.txt"))


def test_dictionary_that_fairseq_loads_has_the_bridges_numbers(bridge, tmp_path):
    dictionary = load_dictionary(bridge, tmp_path)
    assert dictionary.symbols == bridge.symbols and len(set(bridge.symbols)) == len(bridge) == len(dictionary)
    assert dictionary.count[4:] == [1] * (len(bridge) - 4)
    assert (dictionary.bos(), dictionary.pad(), dictionary.eos(), dictionary.unk()) == (BOS, PAD, EOS, UNKNOWN)


@pytest.mark.parametrize("together", [1, 3, 1000])
def test_much_text_is_cut_some_at_a_time_into_the_same_pieces(bridge, monkeypatch, together):
    monkeypatch.setattr(tokenizer_bridge, "_CUT_TOGETHER", together)
    texts = [composed(text) for text in TEXTS]
    where = [number % 2 == 0 for number in range(len(texts))]
    numbers, ends = bridge.cut(texts, where)
    assert [each.tolist() for each in numbers] == bridge.numbers_of(texts)
    assert [each is not None for each in ends] == where
    for text, found in zip(texts[::2], ends[::2]):
        (whole,) = bridge.cut([text], [True])[1]
        assert found.tolist() == whole.tolist()


def test_numbers_are_a_permutation_of_the_tokenizers(bridge):
    ids = bridge.tokenizer_ids.tolist()
    known = bridge.tokenizer.get_vocab()
    assert set(ids) - {-1} == set(range(max(known.values()) + 1))
    assert len(set(ids[4:])) == len(ids) - 4 and not set(ids[4:]) & set(ids[:4])  # only the four may share a piece
    assert ids[4:] == sorted(ids[4:])
    if bridge.tokenizer.mask_token_id is not None:
        assert ids[bridge.symbols.index(MASK)] == bridge.tokenizer.mask_token_id


def test_lines_of_pieces_come_back_from_fairseq_as_the_tokenizers_numbers(bridge, tmp_path):
    dictionary = load_dictionary(bridge, tmp_path)
    for text, numbers in zip(TEXTS, bridge.numbers_of(TEXTS), strict=True):
        line = bridge.line_of(numbers)
        assert line.split() == line.split(" ") or not line
        encoded = dictionary.encode_line(line, add_if_not_exist=False).tolist()
        assert encoded == [*numbers, EOS]
        own = bridge.tokenizer(composed(text))["input_ids"]
        assert bridge.tokenizer_ids[[*bridge.opening, *numbers, *bridge.closing]].tolist() == own


def test_text_of_pieces_is_the_tokenizers_own_decoding(bridge):
    plain = [text for text in TEXTS if not any(mark in text for mark in ("</s>", "[SEP]"))]
    for text in plain:
        ids = bridge.tokenizer(composed(text), add_special_tokens=False)["input_ids"]
        assert bridge.text_of(bridge.line_of(bridge.numbers_of([text])[0])) == bridge.tokenizer.decode(ids)


def test_spans_cover_each_pieces_characters_without_space(bridge):
    for text, numbers, spans in zip(TEXTS, bridge.numbers_of(TEXTS), bridge.spans_of(TEXTS), strict=True):
        text = composed(text)
        assert len(spans) == len(numbers)
        assert all(
            0 <= start <= end <= len(text) and text[start:end] == text[start:end].strip() for start, end in spans
        )
        assert [start for start, _ in spans] == sorted(start for start, _ in spans)
        covered = {place for start, end in spans for place in range(start, end)}
        missed = "".join(letter for place, letter in enumerate(text) if place not in covered)
        assert not missed.replace("\u200b", "").replace("\x85", "").replace("\x1c", "").strip(), text


def test_composed_and_decomposed_letters_have_the_same_pieces(bridge):
    first, second = bridge.numbers_of(["u\u0308ber", "\u00fcber"])
    assert first == second


@pytest.mark.parametrize(
    ("family", "text", "line"),
    [
        ("wordpiece", "A dog runs in New York", "a dog run ##s <unk> <piece:59>"),  # "in": no piece ##n … but i
        ("bytes", "A dog", "A Ġd og"),
        ("unigram", "A dog runs.", "▁A ▁dog ▁runs."),
        ("albert", "a dog", "▁ a ▁dog"),
        ("t5", "A dog", "▁A ▁dog"),
    ],
)
def test_pieces_are_spelled_as_the_tokenizer_spells_them(tmp_path, family, text, line):
    bridge = made(tmp_path, family)
    assert bridge.line_of(bridge.numbers_of([text])[0]).replace("i ##n", "<unk>") == line


def test_pieces_that_a_line_could_not_hold_are_spelled_by_their_number(tmp_path):
    bridge = made(tmp_path, "wordpiece")
    spelled = dict(zip(bridge.tokenizer_ids.tolist(), bridge.symbols))
    known = {number: piece for piece, number in bridge.tokenizer.get_vocab().items()}
    respelled = {known[number]: symbol for number, symbol in spelled.items() if known[number] != symbol}
    assert respelled == {
        "[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[UNK]": "<unk>", "[MASK]": "<mask>",
        "<unk>": "<piece:6>", "<s>": "<piece:7>", "<mask>": "<piece:8>", "madeupword0000": "<piece:9>",
        "<piece:3>": "<piece:10>", "new york": "<piece:59>",
    }  # fmt: skip
    assert bridge.text_of("a <piece:59> dog") == "a new york dog"


def test_numbers_without_a_piece_have_a_symbol_so_that_later_rows_stay_in_place(tmp_path):
    folder = make_tokenizer(tmp_path / "holes", "wordpiece")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    del tokenizer["model"]["vocab"]["[unused0]"]  # as a vocab.txt with one piece twice does
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    bridge = TokenizerBridge(str(folder))
    assert bridge.symbols[4] == "<piece:1>" and bridge.tokenizer_ids[4] == 1
    assert len(bridge.symbols) == len(bridge.tokenizer_ids) == 1 + max(bridge.tokenizer.get_vocab().values())
    assert bridge.line_of(bridge.numbers_of(["a dog"])[0]) == "a dog"


def test_roles_are_those_that_the_tokenizer_plays_them_with(tmp_path):
    for family, roles, opening, closing in (
        ("wordpiece", [3, 0, 4, 2], [BOS], [EOS]),
        ("bytes", [0, 1, 2, 3], [BOS], [EOS]),
        ("unigram", [0, 1, 2, 3], [BOS], [EOS]),
        ("albert", [2, 0, 3, 1], [BOS], [EOS]),
        ("t5", [-1, 0, 1, 2], [], [EOS]),
        ("gpt2", [300, -1, 300, 300], [], []),
    ):
        bridge = made(tmp_path, family)
        assert bridge.tokenizer_ids[:4].tolist() == roles, family
        assert (bridge.opening, bridge.closing) == (opening, closing), family
    assert bridge.numbers_of(["<|endoftext|>"]) == [[EOS]]  # which of its roles a text names


def test_words_that_are_no_pieces_stay_and_no_line_break_comes_out(tmp_path):
    bridge = made(tmp_path, "wordpiece")
    assert (
        bridge.text_of("a <<unk>> dog <unk> run ##s UNKNOWNTOKENINHYP") == "a <<unk>> dog [UNK] runs UNKNOWNTOKENINHYP"
    )
    assert bridge.text_of("<s> a dog </s> <pad>") == "a dog" and bridge.text_of("") == ""
    bridge = made(tmp_path, "gpt2")  # the piece of a line feed is visible in a dictionary, and a line feed in text
    assert bridge.text_of("A Ċ b") == "A b" and bridge.text_of("a <unk>") == "a<|endoftext|>"


def test_tokenizer_alone_or_with_its_model_says_how_many_pieces_fit(tmp_path):
    from transformers import BertConfig, XLMRobertaConfig

    folder = make_tokenizer(tmp_path / "alone", "wordpiece")
    assert TokenizerBridge(str(folder)).max_pieces == 999_998
    BertConfig(max_position_embeddings=16).save_pretrained(folder)
    assert TokenizerBridge(str(folder)).max_pieces == 14
    folder = make_tokenizer(tmp_path / "positions", "unigram")
    XLMRobertaConfig(max_position_embeddings=18).save_pretrained(folder)  # two of them are before the first token
    assert TokenizerBridge(str(folder)).max_pieces == 14
    assert TokenizerBridge(str(minilm())).max_pieces == 510


def test_digest_tells_tokenizers_apart_and_not_how_they_were_called(tmp_path):
    bridge = made(tmp_path, "wordpiece")
    digest = bridge.sha256
    again = TokenizerBridge(str(tmp_path / "wordpiece"))
    again.tokenizer(["a dog", "a"], truncation=True, max_length=3, padding=True)
    assert again.sha256 == digest
    settings = json.loads((tmp_path / "wordpiece/tokenizer.json").read_text())
    settings["normalizer"]["lowercase"] = False
    (tmp_path / "wordpiece/tokenizer.json").write_text(json.dumps(settings))
    description = json.loads((tmp_path / "wordpiece/tokenizer_config.json").read_text())
    (tmp_path / "wordpiece/tokenizer_config.json").write_text(json.dumps({**description, "do_lower_case": False}))
    cased = TokenizerBridge(str(tmp_path / "wordpiece"))
    assert cased.symbols == bridge.symbols and cased.sha256 != digest
    assert made(tmp_path, "unigram").sha256 != digest


def test_dictionary_may_be_filled_up_to_a_multiple(bridge, tmp_path):
    dictionary = load_dictionary(bridge, tmp_path)
    dictionary.pad_to_multiple_(64)
    assert len(dictionary) % 64 == 0
    bridge.check_dictionary(dictionary.symbols, "dict.txt")


def test_another_dictionary_is_refused_with_the_first_symbol_that_differs(tmp_path):
    bridge = made(tmp_path, "wordpiece")
    size = len(bridge)
    symbols = list(bridge.symbols)
    symbols[11], symbols[12] = symbols[12], symbols[11]  # the same size, by accident
    head = rf"bin/dict.txt should be the dictionary of tokenizer '.*wordpiece', whose {size} symbols have"
    tail = r"prepare pieces --tokenizer .*wordpiece --text … --out DIR, .* fairseq-preprocess --srcdict DIR/dict.txt"
    for wrong, differs in (
        (symbols, rf"'a' at number 11, but has 'dog' there \({size} symbols in all\)"),
        (bridge.symbols[:-1], rf"'<piece:59>' at number {size - 1}, but has nothing there \({size - 1} symbols"),
        ([*bridge.symbols, "cat"], rf"no more at number {size}, but has 'cat' there \({size + 1} symbols"),
    ):
        with pytest.raises(InputError, match=f"{head} {differs}.*{tail}"):
            bridge.check_dictionary(wrong, "bin/dict.txt")


def test_what_is_no_tokenizer_is_refused(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    for name in (tmp_path / "empty", "no-such/tokenizer", tmp_path / "nowhere"):
        with pytest.raises(
            InputError, match=rf"tokenizer '{name}' should be a folder with a pretrained model, or .* hub"
        ):
            TokenizerBridge(str(name))
    from transformers import BertTokenizer

    make_tokenizer(tmp_path / "slow", "wordpiece")
    monkeypatch.setattr(BertTokenizer, "is_fast", False)
    with pytest.raises(InputError, match=r"should be one with a tokenizer.json, .* but is a BertTokenizer without"):
        TokenizerBridge(str(tmp_path / "slow"))


def test_tokenizer_that_makes_no_pieces_is_refused(tmp_path):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE({"b": 0}, []))).save_pretrained(tmp_path / "mute")
    with pytest.raises(InputError, match=r"mute' should make a piece of the text 'a', but makes none"):
        TokenizerBridge(str(tmp_path / "mute"))
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"b": 0}))).save_pretrained(tmp_path / "words")
    with pytest.raises(InputError, match=r"words' can't cut 'a' … : WordLevel error: Missing \[UNK\] token"):
        TokenizerBridge(str(tmp_path / "words"))


def test_bridge_needs_no_fairseq():
    script = f"""
import sys
sys.modules["fairseq"] = None
from visual_grounding.text.tokenizer_bridge import TokenizerBridge
print(TokenizerBridge({str(minilm())!r}).line_of([0, 2]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "<s> </s>\n"), done.stderr
