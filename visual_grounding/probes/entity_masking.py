"""Entity masking (VTLM Table 3, after Caglayan et al. 2019): what does a translator do once words are hidden from it?

Words of the source, such as its nouns, are replaced by a mask (MASK), or taken out (REMOVE), when the model translates;
it was trained on whole sentences, or on masked ones. A model that looks at its images loses less than its text-only
twin. The probe works on batches, so it does with any model of `--task grounded_translation`.

A word has one mask, however many pieces it is cut into: how many there were would say something about it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.data import Dictionary, FairseqDataset, data_utils
from fairseq.dataclass.configs import GenerationConfig

from ..errors import InputError
from ..shares import share, warn_of
from ..text.pieces import join_pieces
from ..text.resemblance import letters
from ..text.tokenizer_bridge import TokenizerBridge
from ..text.word_positions import NO_WORD, UNKNOWN_PIECE, mask_words, words_of_pieces, words_of_spans
from .trained import Trained, batches, check_sizes, on_device

SOURCES = ("unmasked", "mask", "remove")
MASKS = ("<mask>", "[MASK]")
_STRANGERS = 20  # one sentence in so many may be another than the text says, before the text is refused


@dataclass(frozen=True)
class Sources:
    """The sentences of a split as their model reads them, and the word that each token belongs to.

    Attributes:
        tokens: sentence -> its tokens, its end included.
        words: sentence -> for each token the number of its word, `NO_WORD` for none; only of sentences that are those
            of the text.
    """

    tokens: dict[int, list[int]]
    words: dict[int, list[int]]


def mask_of(dictionary: Dictionary, path: str) -> int:
    """The token that stands for a hidden word.

    Args:
        path: of the checkpoint, for the message.

    Raises:
        InputError: the dictionary has none.
    """
    for symbol in MASKS:
        if symbol in dictionary:
            return dictionary.index(symbol)
    raise InputError(
        f"the source dictionary of {path} should have {' or '.join(MASKS)} to put in the place of words, but has "
        f"neither among its {len(dictionary)} symbols. Train on a text in which some words are masked, or on pieces of "
        "a pretrained tokenizer, which brings its mask; or add the line '<mask> 1' to the dictionary before a model is "
        "pre-trained and fine-tuned with it.",
        "checkpoint",
    )


def read_sources(
    trained: Trained, dataset: FairseqDataset, lines: Sequence[str], text: str, bridge: TokenizerBridge | None = None
) -> Sources:
    """Find the words of a text in the tokens of a split.

    Args:
        lines: the text of which the split is made, one line a sentence.
        text: where it was read, for messages.
        bridge: the tokenizer that made the pieces; only byte-level ones need it, as their letters aren't the text's.

    Raises:
        InputError: the split has another number of sentences, or others.
    """
    if len(lines) != len(dataset):
        raise InputError(
            f"{text} should have the {len(dataset)} sentences of the split, in the language that is translated, but "
            f"has {len(lines)} lines.",
            "text",
            "split",
        )
    dictionary = trained.task.source_dictionary
    special = {dictionary.bos(), dictionary.pad(), dictionary.eos()}
    numbers = None if bridge is None else bridge.numbers_of(lines)
    spans = None if bridge is None else bridge.spans_of(lines)
    tokens, words, strangers = {}, {}, []
    for row, line in enumerate(lines):
        tokens[row] = dataset[row]["source"].tolist()
        places = [place for place, token in enumerate(tokens[row]) if token not in special]
        pieces = [tokens[row][place] for place in places]
        if numbers is not None and spans is not None:
            found = words_of_spans(spans[row], line) if numbers[row] == pieces else None
        else:
            found = words_of_pieces([_symbol(dictionary, piece) for piece in pieces], line)
        if found is None:
            strangers.append(row)
            continue
        words[row] = [NO_WORD] * len(tokens[row])
        for place, word in zip(places, found):
            words[row][place] = word
    if len(strangers) * _STRANGERS > len(lines):
        first = strangers[0]
        raise InputError(
            f"{text} should be the text of the split that {trained.path} translates, but of its {len(lines)} lines "
            f"{len(strangers)} have other letters, the first is line {first + 1}: {lines[first][:60]!r}, which the "
            f"split has as {dictionary.string(dataset[first]['source'])[:60]!r}. Give the text that was cut into "
            "pieces. Where its letters can't be read in the pieces, as in byte-level ones, name their tokenizer.",
            "text",
            "bpe_tokenizer",
        )
    return Sources(tokens, words)


def _symbol(dictionary: Dictionary, token: int) -> str:
    return UNKNOWN_PIECE if token == dictionary.unk() else dictionary[token]


def masked_sources(
    sources: Sources, rows: Sequence[int], positions: Sequence[Collection[int]], source: str, mask: int
) -> dict[int, list[int]]:
    """Tokens of some sentences as the model is to read them.

    Args:
        positions: for each sentence of the split the words that are hidden.
        source: one of `SOURCES`.
        mask: the mask's token.
    """
    if source == "unmasked":
        return {row: sources.tokens[row] for row in rows}
    put = mask if source == "mask" else None
    return {row: mask_words(sources.tokens[row], sources.words[row], positions[row], put) for row in rows}


def hidden_words(lines: Sequence[str], rows: Sequence[int], positions: Sequence[Collection[int]]) -> Counter[str]:
    """How often each word is hidden: it shows at once whether the positions are of this text."""
    return Counter(lines[row].split()[word].lower() for row in rows for word in positions[row])


def writer_of(dictionary: Dictionary, bridge: TokenizerBridge | None) -> Callable[[str], str]:
    """What joins the pieces of a target: their tokenizer, where it is the one of the bridge, else their marks."""
    if bridge is not None and list(dictionary.symbols[: len(bridge.symbols)]) == list(bridge.symbols):
        return bridge.text_of
    return join_pieces


def check_references(
    trained: Trained,
    dataset: FairseqDataset,
    references: Sequence[str],
    path: str,
    split: str,
    written: Callable[[str], str] = join_pieces,
) -> Iterator[str]:
    """Insist that references are the targets of a split; only letters are compared, and no unknown words.

    Args:
        written: a line of pieces -> text.

    Returns:
        a warning where some are others.

    Raises:
        InputError: another number, or more than half are others.
    """
    if len(references) != len(dataset):
        raise InputError(
            f"{path} should have one reference for each of the {len(dataset)} sentences of {split}, but has "
            f"{len(references)}.",
            "reference",
        )
    if dataset[0].get("target") is None:
        return
    dictionary = trained.task.target_dictionary
    numbers = [dataset[row]["target"] for row in range(len(dataset))]
    targets = [written(dictionary.string(each)) for each in numbers]
    known = [row for row, each in enumerate(numbers) if dictionary.unk() not in each.tolist() and letters(targets[row])]
    other = [row for row in known if letters(targets[row]) != letters(references[row])]
    if not other:
        return
    first = other[0]
    said = (
        f"are others, the first is line {first + 1}: {references[first][:60]!r}, where the split has "
        f"{targets[first][:60]!r}."
    )
    if 2 * len(other) > len(known):
        raise InputError(
            f"{path} should be the translations of {split}, but {share(len(other), len(known), 'sentences')} {said}",
            "reference",
            "split",
        )
    yield from warn_of(len(other), len(known), said, f"sentences of {path}")


def translate(
    trained: Trained,
    dataset: FairseqDataset,
    sources: Mapping[int, Sequence[int]],
    split: str,
    batch_size: int,
    written: Callable[[str], str] = join_pieces,
    done: Callable[[int], object] = bool,
    **generation: Any,
) -> dict[int, str]:
    """Translate sentences whose source is given; their images are those of the dataset.

    Args:
        sources: sentence -> its tokens.
        split: its name, for messages.
        batch_size: how many sentences a batch has.
        written: a line of pieces -> text.
        done: is told how many sentences are translated, batch by batch.
        generation: settings of fairseq's `GenerationConfig`, such as `beam`.

    Returns:
        sentence -> its translation.

    Raises:
        InputError: a sentence is longer than the model can read.
    """
    dictionary = trained.task.target_dictionary
    rows = list(sources)
    check_sizes(trained, dataset, rows, split)
    generator = trained.task.build_generator([trained.model], GenerationConfig(**generation))
    found: dict[int, str] = {}
    with torch.no_grad():
        for batch in batches(dataset, rows, batch_size):
            numbers = batch["id"].tolist()
            batch = on_device(trained, replace_source(trained, batch, [sources[row] for row in numbers]))
            done(len(numbers))
            for row, best in zip(numbers, trained.task.inference_step(generator, [trained.model], batch)):
                found[row] = written(dictionary.string(best[0]["tokens"].int().cpu()))
    return {row: found[row] for row in rows}


def replace_source(trained: Trained, batch: dict[str, Any], sources: Sequence[Sequence[int]]) -> dict[str, Any]:
    """A batch with other source sentences, in the order of its rows."""
    dictionary = trained.task.source_dictionary
    lengths = torch.tensor([len(source) for source in sources])
    padded = data_utils.collate_tokens(
        [torch.tensor(source) for source in sources], dictionary.pad(), left_pad=bool(trained.settings.left_pad_source)
    )
    inputs = {**batch["net_input"], "src_tokens": padded, "src_lengths": lengths}
    return {**batch, "net_input": inputs}
