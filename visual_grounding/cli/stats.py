"""How captions differ from other text, one row a corpus: Table 1 of Tan and Bansal 2020 for any corpora.

  visual-grounding stats --text captions=captions.txt wiki=wiki.1.txt wiki=wiki.2.txt.gz news=news.txt \\
      --by-line captions --reference wiki --captions captions --tokenizer bert-base-uncased --out stats

Tokens, sentences, vocabulary (types with more than 5 occurrences), tokens per sentence; the Jensen-Shannon divergence
of 1- and 2-grams to --reference, in bits (0: the same, 1: nothing in common); the grounding ratio: the share of tokens
whose type occurs often in --captions and is neither a stop word nor a punctuation mark. Texts are read once; memory
holds the counts. DIR/statistics.txt, .md, .tex and .json have the same numbers.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, check_at_least_one, printable, warn
from .tables import NONE, in_form, table_as, write_tables

if TYPE_CHECKING:
    from ..analysis.corpus_statistics import Statistics


_GROUNDED_ABOVE = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument(
        "--text",
        nargs="+",
        action="extend",
        required=True,
        metavar="NAME=FILE",
        help="files of the corpora, UTF-8, also .gz and .zst; files of one name are one corpus",
    )
    parser.add_argument(
        "--reference", metavar="NAME", help="the corpus that the others' distributions are compared with"
    )
    parser.add_argument("--captions", metavar="NAME", help="the corpus that says which tokens are grounded")
    parser.add_argument(
        "--tokenizer",
        metavar="NAME|FOLDER",
        help="count its pieces, as the paper does: a name on the hub, or a folder (default: words, in small letters)",
    )
    parser.add_argument(
        "--by-line",
        nargs="+",
        default=[],
        metavar="NAME",
        help="corpora in which each line is a sentence, as captions are",
    )
    parser.add_argument(
        "--language", default="en", help="of the other corpora, for their sentences (default: %(default)s)"
    )
    parser.add_argument(
        "--grounded-above",
        type=int,
        default=_GROUNDED_ABOVE,
        metavar="N",
        help="a type is grounded if it occurs more than N times in the captions (default: %(default)s)",
    )
    parser.add_argument(
        "--stop-words",
        metavar="LANG|FILE",
        help="those of a language in stopwords-iso, such as de, or a file, one a line (default: a short English list)",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the tables (default: print only)")


def run(args: argparse.Namespace) -> None:
    """Count, print the table, write it.

    Raises:
        InputError: names that no corpus has, texts that can't be read, or an output that can't be written.
    """
    from ..analysis.corpus_statistics import Pieces, Words, count_corpus, grounded_types, statistics_of
    from ..text.sentences import check_language
    from ..text.stop_words import ENGLISH, stop_words_named
    from ..text.tokenizer_bridge import TokenizerBridge

    texts = _texts(args)
    check_at_least_one(grounded_above=args.grounded_above)
    check_language(args.language)
    stop_words = ENGLISH if args.stop_words is None else stop_words_named(args.stop_words)
    if args.captions is None and (args.stop_words is not None or args.grounded_above != _GROUNDED_ABOVE):
        raise InputError("what counts as grounded is told by captions: name them.", "captions")
    tokens = Words() if args.tokenizer is None else Pieces(TokenizerBridge(args.tokenizer))
    corpora = {
        name: count_corpus(files, tokens, None if name in args.by_line else args.language)
        for name, files in texts.items()
    }
    for name in (name for name, corpus in corpora.items() if not corpus.sentences):
        warn(f"there isn't a word in {printable(name)}.")
    grounded = None
    if args.captions is not None:
        grounded = grounded_types(corpora[args.captions].types, tokens.text_of, stop_words, args.grounded_above)
        if not len(grounded):
            warn(
                f"no word of {printable(args.captions)} occurs more than {args.grounded_above} times, so none "
                "is grounded. See --grounded-above."
            )
    reference = corpora[args.reference] if args.reference is not None else None
    rows = {name: statistics_of(corpus, reference, grounded) for name, corpus in corpora.items()}
    heading = _heading(args, tokens.description, None if grounded is None else len(grounded))

    def content() -> dict[str, Any]:
        from .scoring import meta_of

        return {
            "corpora": [{"name": name, **row._asdict()} for name, row in rows.items()],
            "tokens": tokens.description,
            "reference": args.reference,
            "captions": args.captions,
            "grounded": None if grounded is None else sorted(tokens.text_of(int(each)) for each in grounded),
            "said": heading,
            "meta": meta_of(args, [], ["sentencex"]),
        }

    print(write_tables(args.out, "statistics", lambda form: _text(rows, heading, form), content), end="")


def _texts(args: argparse.Namespace) -> dict[str, list[Path]]:
    """Files of each corpus, in the order of the flags."""
    texts: dict[str, list[Path]] = {}
    for named in args.text:
        name, equals, path = named.partition("=")
        if not equals or not name or not path:
            raise InputError(f"--text should be NAME=FILE, but is {named!r}.")
        texts.setdefault(name, []).append(Path(path))
    for flag, names in (("reference", [args.reference]), ("captions", [args.captions]), ("by-line", args.by_line)):
        unknown = [name for name in names if name is not None and name not in texts]
        if unknown:
            raise InputError(f"--{flag} should be a name of --text ({', '.join(texts)}), but is {unknown[0]}.")
    return texts


def _heading(args: argparse.Namespace, tokens: str, grounded: int | None) -> str:
    by_line = [name for name in dict.fromkeys(args.by_line)]
    said = [f"tokens: {tokens}", f"sentences: by the rules of sentencex ({args.language})"]
    if by_line:
        said[-1] += f", of {' and '.join(by_line)} the lines"
    said.append("vocabulary: types with more than 5 occurrences")
    if args.reference is not None:
        said.append(f"JSD: Jensen–Shannon divergence to {args.reference}, in bits")
    if grounded is not None:
        said.append(
            f"grounded: {grounded} types with more than {args.grounded_above} occurrences in {args.captions}, stop "
            "words and punctuation left out"
        )
    return printable("; ".join(said))


def _text(rows: dict[str, "Statistics"], heading: str, form: str) -> str:
    head = ["", "tokens", "sentences", "vocabulary", "tokens / sentence", "1-gram JSD", "2-gram JSD", "grounded"]
    cells = [head]
    for name, row in rows.items():
        counts = [f"{count:,}" for count in (row.tokens, row.sentences, row.vocabulary)]
        divergences = [_number(row.divergence_1, 3), _number(row.divergence_2, 3)]
        share = NONE if row.grounding_ratio is None else f"{100 * row.grounding_ratio:.1f} %"
        cells.append([name, *counts, _number(row.tokens_per_sentence, 1), *divergences, share])
    return f"{in_form(heading, form)}\n\n{table_as(cells, form)}\n"


def _number(value: float | None, places: int) -> str:
    return NONE if value is None else f"{value:.{places}f}"
