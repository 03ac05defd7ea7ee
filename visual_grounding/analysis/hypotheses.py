"""Read translations and references: plain text, or what `fairseq-generate` prints, recognised by content.

`fairseq-generate` prints its sentences in the order of its batches, several lines each: `H-<id>` is the hypothesis as
the model's tokens, `D-<id>` the same after `--post-process`, `--bpe` and `--tokenizer` have been undone. `T-<id>` is
the target that belongs to it, which tells whether a reference is of the sentences that were translated.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from ..shares import warn_of
from ..storage.lines import read_lines
from ..text.pieces import join_pieces
from ..text.resemblance import letters

_HYPOTHESIS = re.compile(r"([HD])-(\d{1,18})\t(?:-?(?:inf|nan|[\d.]+(?:e[+-]?\d+)?))(?:\t(.*))?", re.IGNORECASE)
_SUBWORD_MARK = re.compile(r"@@(?= |$)|(?:^| )(?:\u2581|##(?=\w))")
_SOURCE = re.compile(r"S-(\d{1,18})\t(.*)")
_TARGET = re.compile(r"T-(\d{1,18})\t(.*)")
_UNKNOWN = "<unk>"  # also in <<unk>>, as fairseq-generate writes it into targets
_LONGEST = 100_000  # letters of a line
_ENOUGH = 10  # comparable sentences to tell another set by, where there are so many


class Translations(NamedTuple):
    """What a file of translations holds.

    Attributes:
        sentences: the translations in the order of the corpus; empty ones are kept.
        targets: sentence id, counted from 0 -> its target, as far as there are any; none in plain text.
    """

    sentences: list[str]
    targets: dict[int, str]


def read_hypotheses(path: str | Path) -> list[str]:
    """Translations in the order of the corpus, one string a sentence: `read_translations` without the targets.

    Raises:
        InputError: as `read_translations`.
    """
    return read_translations(path).sentences


def read_translations(path: str | Path) -> Translations:
    """Translations, and beside what `fairseq-generate` prints the targets of the sentences that it translated.

    Of several translations of a sentence (`--nbest`) the first, which is the best, counts.

    Raises:
        InputError: as `read_lines`; a sentence id is missing or comes from two runs; words are still split.
    """
    lines = read_lines(path)
    targets: dict[int, str] = {}
    found = [match for match in map(_HYPOTHESIS.fullmatch, lines) if match]
    if found:
        numbered = [(int(match[1]), match[2]) for match in map(_TARGET.fullmatch, lines) if match]
        lines = _in_corpus_order(path, found)
        targets = {number: target for number, target in numbered if number < len(lines)}
    _refuse_subwords(path, lines)
    return Translations(lines, targets)


def read_references(path: str | Path) -> list[str]:
    """Reference translations, one line a sentence.

    Raises:
        InputError: as `read_lines` and `refuse_endless`; the file is empty; words are still split.
    """
    lines = read_lines(path)
    refuse_endless(path, lines)
    if not any(line.strip() for line in lines):
        raise InputError(f"{path} should hold one reference translation a line, but is empty: nothing to compare with.")
    _refuse_subwords(path, lines)
    return lines


def refuse_endless(path: str | Path, lines: Sequence[str]) -> None:
    """Refuse lines that are no sentences but whole files: scoring one of a megabyte takes minutes, and says nothing.

    Raises:
        InputError: there is one.
    """
    for number, line in enumerate(lines, 1):
        if len(line) > _LONGEST:
            raise InputError(
                f"{path} should have a sentence a line, but line {number} has {len(line)} letters, more than "
                f"{_LONGEST}. Were its line ends lost?"
            )


def check_targets(
    path: str | Path, targets: Mapping[int, str], reference_path: str | Path, references: Sequence[str]
) -> Iterator[str]:
    """Insist that references are those of the sentences that were translated, by the targets beside the translations.

    Only letters and digits are compared, so that tokens, pieces, case and accents may differ; a target with unknown
    words isn't compared.

    Args:
        path: of the translations.
        targets: sentence id -> target.
        reference_path: of the references.
        references: one for each sentence.

    Returns:
        a warning where some differ.

    Raises:
        InputError: more than half of them differ, of at least 10, or of all where there are fewer sentences.
    """
    compared = [number for number, target in sorted(targets.items()) if _UNKNOWN not in target]
    differing = [number for number in compared if _letters(targets[number]) != _letters(references[number])]
    if not differing:
        return
    first = differing[0]
    place = (
        f"the first is sentence {first + 1}: {_shortened(targets[first])} in {path}, but "
        f"{_shortened(references[first])} in {reference_path}"
    )
    if len(compared) >= min(_ENOUGH, len(references)) and 2 * len(differing) > len(compared):
        raise InputError(
            f"{path} should hold translations of the sentences in {reference_path}, but of the targets that "
            f"fairseq-generate wrote beside them (T- lines) {len(differing)} of {len(compared)} are other sentences, "
            f"{place}. Give the reference of the set that was translated, in the target language, or translate this "
            "set: fairseq-generate … --gen-subset SPLIT. If they are the same sentences in another spelling, give the "
            f"translations alone: grep ^D- {path} | sort -V | cut -f3"
        )
    said = f"aren't the reference's, letter for letter; {place}."
    yield from warn_of(len(differing), len(compared), said, f"targets in {path}")


def check_sources(path: str | Path, source_path: str | Path, sources: Sequence[str]) -> Iterator[str]:
    """A warning where sources aren't what `fairseq-generate` wrote beside the translations, if it did.

    It is no mistake by itself: a model may have been given masked sentences, and be judged by the whole ones.

    Args:
        path: of the translations.
        source_path: of the sources.
        sources: one for each translation.

    Raises:
        InputError: as `read_lines`.
    """
    found = {int(match[1]): match[2] for match in map(_SOURCE.fullmatch, read_lines(path)) if match}
    compared = [number for number in sorted(found) if number < len(sources) and _UNKNOWN not in found[number]]
    differing = [number for number in compared if _letters(found[number]) != _letters(sources[number])]
    if differing:
        first = differing[0]
        said = (
            f"aren't those of {source_path}, letter for letter; the first is sentence {first + 1}: "
            f"{_shortened(found[first])}, but {_shortened(sources[first])}."
        )
        yield from warn_of(len(differing), len(compared), said, f"sources in {path}")


def _letters(text: str) -> str:
    return letters(join_pieces(text))


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:59]}…")


def _in_corpus_order(path: str | Path, found: list[re.Match[str]]) -> list[str]:
    """Sort by sentence id and insist that ids run from 0 to the highest. `D` lines are preferred to `H` lines."""
    kind = "D" if any(match[1] == "D" for match in found) else "H"
    sentences: dict[int, str] = {}
    previous = None
    for match in found:
        if match[1] != kind:
            continue
        number = int(match[2])
        if number != previous and number in sentences:
            raise InputError(
                f"{path} should hold one run of fairseq-generate, but sentence {number} comes back after "
                "other sentences. Give each run its own file; --hypothesis takes several."
            )
        sentences.setdefault(number, match[3] or "")
        previous = number
    highest = max(sentences)
    if len(sentences) <= highest:
        first = next(number for number in range(highest) if number not in sentences)
        raise InputError(
            f"{path} should hold every sentence id from 0 to {highest}, its highest, but "
            f"{highest + 1 - len(sentences)} are missing, the first is {first}. fairseq-generate drops a last batch "
            "that isn't a multiple of 8, drops sentences with --skip-invalid-size-inputs-valid-test, and loses some "
            "when interrupted. Run it again with --required-batch-size-multiple 1, to its end, without the other flag."
        )
    return [sentences[number] for number in range(highest + 1)]


def _refuse_subwords(path: str | Path, lines: list[str]) -> None:
    """All scores count words. One line in twenty decides, as a stray mark may be the text's own."""
    marked = [number for number, line in enumerate(lines, 1) if _SUBWORD_MARK.search(line)]
    if marked and len(marked) * 20 >= len(lines):
        raise InputError(
            f"{path} should hold whole words, but {len(marked)} of {len(lines)} sentences have subword marks "
            f"('@@ ', '\u2581' or '##'), the first is sentence {marked[0]}: {lines[marked[0] - 1][:60]!r}. "
            "Run fairseq-generate with --post-process subword_nmt (or sentencepiece; or --bpe pretrained_pieces "
            "--bpe-tokenizer NAME for a pretrained model's pieces), or join the words of a plain text: "
            "sed -E 's/@@( |$)//g'"
        )
