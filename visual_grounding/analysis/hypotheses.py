"""Read translations and references: plain text, or what `fairseq-generate` prints, recognised by content.

`fairseq-generate` prints its sentences in the order of its batches, several lines each: `H-<id>` is the hypothesis as
the model's tokens, `D-<id>` the same after `--post-process`, `--bpe` and `--tokenizer` have been undone.
"""

import re
from pathlib import Path

from ..errors import InputError
from ..storage.lines import read_lines

_HYPOTHESIS = re.compile(r"([HD])-(\d+)\t(?:-?(?:inf|nan|[\d.]+(?:e[+-]?\d+)?))(?:\t(.*))?", re.IGNORECASE)
_SUBWORD_MARK = re.compile(r"@@(?= |$)|(?:^| )(?:\u2581|##(?=\w))")


def read_hypotheses(path: str | Path) -> list[str]:
    """Translations in the order of the corpus, one string a sentence; empty translations are kept.

    Of several translations of a sentence (`--nbest`) the first, which is the best, counts.

    Raises:
        InputError: as `read_lines`; a sentence id is missing or comes from two runs; words are still split.
    """
    lines = read_lines(path)
    found = [match for match in map(_HYPOTHESIS.fullmatch, lines) if match]
    if found:
        lines = _in_corpus_order(path, found)
    _refuse_subwords(path, lines)
    return lines


def read_references(path: str | Path) -> list[str]:
    """Reference translations, one line a sentence.

    Raises:
        InputError: as `read_lines`; the file is empty; words are still split.
    """
    lines = read_lines(path)
    if not any(line.strip() for line in lines):
        raise InputError(f"{path} should hold one reference translation a line, but is empty: nothing to compare with.")
    _refuse_subwords(path, lines)
    return lines


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
