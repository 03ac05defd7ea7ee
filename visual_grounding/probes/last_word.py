"""The last word of a sentence, masked: can a pre-trained stream predict it, and do its images help (VTLM Table 2)?

The last word of the source, of the target, or of both is masked; sentences lose the punctuation that closes them first,
or the probe would predict full stops. With one word masked, the other language nearly says it. With both, only the
rest of the sentences and the images do, so there images should tell most.

# Assumption: a word of several pieces has one mask for each, as in pre-training, and is right where all its pieces are,
# each the most probable one by itself; the paper doesn't say. The share of right pieces is given, too.

With both masked each sentence has two words; the paper gives one number, which here is the share of right words of
both languages.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary

from ..data.region_masking import RegionMasking
from ..data.sentence_pairs import SentencePairs, stream_of
from ..errors import InputError
from ..shares import share
from ..text.last_word import BYTE_LEVEL, last_word
from ..text.pieces import join_pieces
from ..text.tokenizer_bridge import MASK
from .trained import Trained, check_sizes, on_device

MASKED = ("source", "target", "both")
_SIDES = {"source": (0,), "target": (1,), "both": (0, 1)}  # which sentences of a pair lose their last word


@dataclass(frozen=True)
class Pair:
    """One pair of sentences without what closes them.

    Attributes:
        row: its number in the split.
        sentences: tokens of source and target, (T,) each, `</s>` at the end.
        words: where in each sentence its last word is.
        languages: numbers of the languages.
    """

    row: int
    sentences: tuple[np.ndarray, np.ndarray]
    words: tuple[slice, slice]
    languages: tuple[int, int]


@dataclass(frozen=True)
class Guesses:
    """What was predicted of the masked words of one language; `right` and `pieces_right` follow the sentences' order.

    Attributes:
        right: (n,) bool, all pieces of the word.
        pieces: (n,) how many it has.
        pieces_right: (n,) how many of them are right.
    """

    right: np.ndarray
    pieces: np.ndarray
    pieces_right: np.ndarray


def pairs_of(trained: Trained, dataset: Any) -> tuple[dict[str, list[Pair]], dict[str, int]]:
    """The pairs of a split whose last words can be masked, by their languages ("en-de"), and how many others there are.

    Left out are pairs of which a sentence has no word, or one with an unknown piece in its last word.

    Raises:
        InputError: words can't be told in byte-level pieces.
    """
    dictionary, names = trained.task.source_dictionary, trained.task.stream_languages
    _refuse_bytes(dictionary)
    text, left_out = text_of(dataset), dict.fromkeys(("without a word", "last word unknown"), 0)
    found: dict[str, list[Pair]] = {}
    for row in range(len(text)):
        sentences, languages = text.sentences(row)
        pieces = [[dictionary[token] for token in each.tolist() if token != dictionary.eos()] for each in sentences]
        words = [word for each in pieces if (word := last_word(each)) is not None]
        if len(words) < len(pieces):
            left_out["without a word"] += 1
        elif any(dictionary.unk_word in each[word] for each, word in zip(pieces, words)):
            left_out["last word unknown"] += 1
        else:
            cut = [
                np.append(each.numpy()[each.numpy() != dictionary.eos()][: word.stop], dictionary.eos())
                for each, word in zip(sentences, words)
            ]
            named = "-".join(names[number] for number in languages)
            found.setdefault(named, []).append(Pair(row, (cut[0], cut[1]), (words[0], words[1]), languages))
    return found, left_out


def _refuse_bytes(dictionary: Dictionary) -> None:
    marked = sum(symbol.startswith(BYTE_LEVEL) for symbol in dictionary.symbols)
    if marked * 4 > len(dictionary):
        raise InputError(
            "words should be told by the marks of their pieces (@@, ▁ or ##), but "
            f"{share(marked, len(dictionary), 'pieces')} of the dictionary begin with {BYTE_LEVEL}: they are "
            "byte-level, which this probe can't read.",
            "checkpoint",
        )


def text_of(dataset: Any) -> SentencePairs:
    """The sentences below a split's images."""
    while not isinstance(dataset, SentencePairs):
        dataset = dataset.dataset
    return dataset


def guess(
    trained: Trained,
    dataset: Any,
    pairs: Sequence[Pair],
    masked: str,
    split: str,
    batch_size: int,
    done: Callable[[int], object] = bool,
) -> dict[str, Guesses]:
    """Predict the last words of pairs, with the images of the dataset; no region is masked.

    Args:
        masked: one of `MASKED`.
        split: its name, for messages.
        batch_size: how many pairs a batch has.
        done: is told how many pairs are read, batch by batch.

    Returns:
        "source" or "target", or both -> what was predicted there.

    Raises:
        InputError: a sentence is longer than the model can read.
    """
    check_sizes(trained, dataset, [pair.row for pair in pairs], split)
    names = MASKED[:2]
    right = {side: np.zeros(len(pairs), np.int64) for side in _SIDES[masked]}  # pieces
    pieces = {
        side: np.array([pair.words[side].stop - pair.words[side].start for pair in pairs]) for side in _SIDES[masked]
    }
    for places, batch, chosen, answers in _batches(trained, dataset, pairs, masked, batch_size):
        sample = on_device(trained, batch)
        visual = sample["net_input"].get("visual")
        regions = None if visual is None else torch.zeros_like(visual["padding_mask"])  # no label is asked for
        with torch.no_grad():
            logits, _ = trained.model(**sample["net_input"], words=chosen.to(trained.device), regions=regions)
        hits = (logits.argmax(dim=1).cpu().numpy() == answers).tolist()
        for place in places:  # the words of a row stand in the order of its sentences
            for side in _SIDES[masked]:
                count = int(pieces[side][place])
                right[side][place] = sum(hits[:count])
                del hits[:count]
        done(len(places))
    return {names[side]: Guesses(right[side] == pieces[side], pieces[side], right[side]) for side in right}


def _batches(
    trained: Trained, dataset: Any, pairs: Sequence[Pair], masked: str, batch_size: int
) -> Iterator[tuple[list[int], dict[str, Any], torch.Tensor, np.ndarray]]:
    """Places of some pairs, their batch, which of its words are masked (B, L), and what these are (P,)."""
    dictionary = trained.task.source_dictionary
    shown = dataset.dataset if isinstance(dataset, RegionMasking) else dataset
    length = [sum(map(len, pair.sentences)) for pair in pairs]
    order = sorted(range(len(pairs)), key=lambda place: length[place], reverse=True)
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        items = [masked_item(pairs[place], masked, dictionary) for place in places]
        batch = shown.collater(items)
        targets = batch["word_targets"]  # (B, L)
        chosen = targets != dictionary.pad()
        if "visual" in batch["net_input"]:
            batch["net_input"]["visual"].pop("labels", None)  # as in pre-training, they are only predicted
        yield places, batch, chosen, targets[chosen].numpy()


def masked_item(pair: Pair, masked: str, dictionary: Dictionary) -> dict[str, Any]:
    """A pair as an item of `SentencePairs`, a mask in the place of each piece of its last words.

    Args:
        masked: one of `MASKED`.
    """
    hidden = [each.copy() for each in pair.sentences]
    targets = [np.full(len(each), dictionary.pad()) for each in pair.sentences]
    for side in _SIDES[masked]:
        targets[side][pair.words[side]] = pair.sentences[side][pair.words[side]]
        hidden[side][pair.words[side]] = dictionary.index(MASK)
    tokens, positions, languages = stream_of(hidden, pair.languages, dictionary.eos())
    (word_targets, *_) = stream_of(targets, pair.languages, dictionary.pad())
    return {
        "id": pair.row,
        "tokens": tokens,
        "positions": positions,
        "languages": languages,
        "word_targets": word_targets,
    }


def words_of(trained: Trained, pair: Pair) -> list[str]:
    """The last words of a pair, their pieces joined; the models that are compared may cut them otherwise."""
    dictionary = trained.task.source_dictionary
    lines = [" ".join(dictionary[token] for token in each[word]) for each, word in zip(pair.sentences, pair.words)]
    return [join_pieces(line) for line in lines]
