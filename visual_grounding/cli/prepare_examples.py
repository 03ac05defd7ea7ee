"""Labelled sentences -> training data for grounded_sentence_prediction and grounded_tagging, and text to retrieve by.

  visual-grounding prepare snli --train train.tsv --valid dev.tsv --tokenizer bert-base-uncased --out data/snli
  visual-grounding retrieve --text data/snli/train.first ... --out ids/train    # images of the first sentence, or
  visual-grounding retrieve --text data/snli/train.second ... --out ids/train.second    # of the second
  fairseq-train data/snli --user-dir "$(visual-grounding user-dir)" --task grounded_sentence_prediction ...

The second word says which files these are:

  snli     SNLI and MNLI: TSV, or JSON lines; pairs without a gold label are left out, and counted
  sick     SICK: --columns sentence_A sentence_B relatedness_score takes its other answer
  rte      RTE as GLUE has it
  glue     any task of GLUE, by the names that its columns have; --columns for one without names
  joci     JOCI: CSV, answers are numbers from 1 to 5; --only SUBSET=SNLI takes a part of it
  vua      VUA: CSV, a verb of a sentence, or every noun of one: is it a metaphor?
  conll    CoNLL-2003: a word a line and its tag; IOB1 and other schemes become BIO
  pdtb     PDTB: TSV or CSV with two arguments and a sense; --level 2 takes the first two parts of senses

With --all in the place of --train, --valid and --test the rows are shared out; those with the same first sentence stay
together. A later run may add splits to the folder, with the same flags.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, check_at_least_one, printable, warn

if TYPE_CHECKING:
    from ..text.example_files import Asked
    from ..text.labelled_text import Example, LabelledText

SPLITS = ("train", "valid", "test")
_FEW = 20  # classes with numbers as names: more look like measurements


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The files, and what a task has to choose; which task it is stands behind `prepare`."""
    task = parser.prog.split()[-1]
    parser.set_defaults(kind=task)
    for split, what in (("train", "to train on"), ("valid", "to choose the best checkpoint on"), ("test", "to test")):
        parser.add_argument(f"--{split}", type=Path, nargs="+", metavar="FILE", help=f"rows {what}")
    parser.add_argument("--all", type=Path, nargs="+", metavar="FILE", help="rows to be shared out instead")
    parser.add_argument(
        "--shares",
        type=int,
        nargs=3,
        metavar="PERCENT",
        help="with --all: of train, valid and test (default: 80 10 10)",
    )
    parser.add_argument("--split-seed", type=int, help="with --all: of who goes where (default: 1)")
    parser.add_argument(
        "--tokenizer", required=True, metavar="NAME|FOLDER", help="that of the text encoder: on the hub, or a folder"
    )
    if task == "vua":
        parser.add_argument(
            "--part-of-speech",
            help="of the words asked of, where all have a label (default: NOUN, or VERB where each row names one)",
        )
    elif task == "conll":
        parser.add_argument(
            "--column", type=int, default=0, metavar="N", help="of the tag, counted from 1 (default: the last)"
        )
    else:
        parser.add_argument(
            "--columns",
            nargs="+",
            default=[],
            metavar="NAME",
            help="of the sentence, or both, and of the answer; numbers from 1 on where no row names them (default: as "
            "the task's files have them)",
        )
        parser.add_argument("--values", action="store_true", help="answers are numbers to be told, not names")
        parser.add_argument(
            "--only", nargs="+", default=[], metavar="COLUMN=VALUE", help="rows that have this (default: all)"
        )
    if task == "pdtb":
        parser.add_argument("--level", type=int, metavar="N", help="parts of a sense such as A.b.c (default: all)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")


def run(args: argparse.Namespace) -> None:
    """Read the files, cut them into pieces, and say what there is.

    Raises:
        InputError: files that can't be used, choices that can't be, or an output that can't be written or holds
            examples of another making.
    """
    from ..progress import progress_bar
    from ..shares import warn_of
    from ..storage.artefact import META
    from ..storage.file_set import check_place
    from ..storage.signature import signature
    from ..text.example_files import FORMAT, asked_of, files_of, write_examples
    from ..text.labelled_text import CLASSES, TAGS, VALUES
    from ..text.tokenizer_bridge import TokenizerBridge
    from ..text.words import DICTIONARY

    splits, values = _read(args)
    bridge = TokenizerBridge(args.tokenizer)
    answers = TAGS if args.kind == "conll" else VALUES if values else CLASSES
    made = signature("prepare", task=args.kind, **_choices(args), tokenizer=bridge.sha256[:8])
    asked = asked_of(answers, splits["train"].examples, bridge) if "train" in splits else None
    check_place(args.out, [*files_of(splits), META, DICTIONARY], DICTIONARY, META, FORMAT)
    asked, before = _kept(args.out, splits, made, asked)
    _check_alike(splits, asked, answers)
    examples = {split: found.examples for split, found in splits.items()}
    _check_answers(examples, asked)
    _warn_of_shared(examples, asked, args.out, before)
    for columns in dict.fromkeys(way for found in splits.values() for way in found.columns.splitlines()):
        print(printable(f"columns: {columns}"))
    for split, found in splits.items():
        for remark in found.said("sentences" if args.kind in ("vua", "conll") else "rows"):
            warn(f"{split}: {remark}")
    total = asked.sentences * sum(map(len, examples.values()))
    kept: dict[str, Any] = {}

    def keep() -> dict[str, Any]:
        """Also asked when the folder is locked: another run may have added splits meanwhile."""
        kept.update(_kept(args.out, splits, made, asked)[1])
        return kept

    with progress_bar(total, 0, "sentences") as bar:
        named = write_examples(args.out, examples, asked, bridge, made, keep, bar.update)
    _say(examples, asked, kept)
    print(made)
    what = "name the tokenizer's own first, last or padding symbol, and are read as if it stood there."
    for said in warn_of(named, total, what):
        warn(said)


def _read(args: argparse.Namespace) -> tuple[dict[str, "LabelledText"], bool]:
    """The examples of each split, and whether answers are numbers."""
    from ..storage.outside import check_other_files
    from ..text.labelled_text import LabelledText, share_out

    given = {split: getattr(args, split) for split in SPLITS if getattr(args, split)}
    check_other_files(given)
    if bool(given) == bool(args.all):
        raise InputError("either --all or some of --train, --valid and --test should be given.", "all", *SPLITS)
    if not args.all and (args.shares is not None or args.split_seed is not None):
        flags = ("shares", "split_seed")
        raise InputError("rows are shared out where --all names them, but they are named split by split.", *flags)
    args.shares = [80, 10, 10] if args.shares is None else args.shares
    args.split_seed = 1 if args.split_seed is None else args.split_seed
    if min(args.shares) < 0 or not args.shares[0]:
        raise InputError(
            f"--shares should be three percentages, the first, of what is trained on, above 0, but are "
            f"{' '.join(map(str, args.shares))}."
        )
    found: dict[str, LabelledText] = {}
    kinds = {}
    for split, paths in ({"all": args.all} if args.all else given).items():
        found[split] = LabelledText()
        for path in paths:
            read, kinds[path] = _read_file(path, args)
            found[split].add(read)
    if len(set(kinds.values())) > 1:
        raise InputError(
            "answers should all be numbers, or all names, but are numbers in "
            f"{', '.join(str(path) for path, numbers in kinds.items() if numbers)} alone.",
            "values",
        )
    if args.all:
        wanted = [(split, share) for split, share in zip(SPLITS, args.shares) if share]
        parts = share_out(found["all"].examples, [share for _, share in wanted], args.split_seed)
        whole = found.pop("all")
        found = {split: LabelledText(part, whole.rows) for (split, _), part in zip(wanted, parts)}
        found["train"].remarks, found["train"].columns = whole.remarks, whole.columns
    sizes = {len(each.texts) for read in found.values() for each in read.examples}
    if len(sizes) > 1:
        raise InputError("all files should have one sentence a row, or all two, but some have one and some two.")
    return found, any(kinds.values())


def _read_file(path: Path, args: argparse.Namespace) -> tuple["LabelledText", bool]:
    if args.kind == "vua":
        from ..text.metaphors import read_metaphors

        read, args.part_of_speech = read_metaphors(path, args.part_of_speech)  # those of the first are asked of all
        return read, False
    if args.kind == "conll":
        from ..text.tagged_columns import read_tagged

        if args.column < 0:
            raise InputError(f"--column should be at least 1, or 0 for the last, but is {args.column}.")
        return read_tagged(path, args.column), False
    from ..text.labelled_tables import read_table

    return read_table(path, args.kind, _table_choices(args))


def _table_choices(args: argparse.Namespace) -> Any:
    from ..text.labelled_tables import TableChoices

    if len(args.columns) not in (0, 2, 3):
        raise InputError(f"--columns should be two or three, but are {len(args.columns)}.")
    wrong = [each for each in args.only if not each.partition("=")[0] or "=" not in each]
    if wrong:
        raise InputError(f"--only should be COLUMN=VALUE, but is {wrong[0]}.")
    level = getattr(args, "level", None)
    if level is not None:
        check_at_least_one(level=level)
        if args.values:
            raise InputError("--level is of senses with parts, but --values asks for numbers.", "level", "values")
    only = {name: value for name, _, value in (each.partition("=") for each in args.only)}
    return TableChoices(tuple(args.columns), args.values or None, only, level)


def _choices(args: argparse.Namespace) -> dict[str, object]:
    """What decides which examples a row makes, for the signature."""
    names = ("columns", "values", "only", "level", "part_of_speech", "column")
    chosen = {name: getattr(args, name, None) for name in names}
    if args.all:
        chosen |= {"shares": args.shares, "split_seed": args.split_seed}
    return {
        name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in chosen.items() if value
    }


def _kept(
    out: Path, splits: dict[str, "LabelledText"], made: str, asked: "Asked | None"
) -> tuple["Asked", dict[str, Any]]:
    """What is asked, and what the folder holds of earlier runs that stays beside this one's splits.

    Raises:
        InputError: it was made otherwise, or goes by other answers; or there is nothing to add to.
    """
    import os

    from ..storage.artefact import META
    from ..storage.file_set import check_finished
    from ..text.example_files import read_asked
    from ..text.words import DICTIONARY

    if not os.path.isfile(out / META):
        if asked is None:
            raise InputError(
                f"{out} should hold examples to train on, which say what answers there are, before others are added: "
                "give --train, too."
            )
        return asked, {}
    before, meta = read_asked(out)
    kept = {name: of for name, of in meta["splits"].items() if name not in splits}
    if kept or asked is None:
        check_finished(out, DICTIONARY)
    if kept and ((meta["signature"], asked or before) != (made, before) or "shares" in made):
        raise InputError(
            f"{out} should hold examples of one making, but has {', '.join(sorted(kept))} of an earlier run, made by "
            f"{meta['signature']} with {len(before.labels)} answers, and this one would add others by {made}. Choose "
            "another --out, delete that folder, or give all files together."
        )
    return asked or before, kept


def _check_alike(splits: dict[str, "LabelledText"], asked: "Asked", answers: str) -> None:
    """Refuse splits of another number of sentences, or of other answers, than the folder has.

    Raises:
        InputError: one is.
    """
    for split, found in splits.items():
        sentences = len(found.examples[0].texts)
        if (sentences, answers) != (asked.sentences, asked.answers):
            raise InputError(
                f"examples of {split} should be of {asked.sentences} sentences with {asked.answers} to be told, as "
                f"those to train on, but are of {sentences} with {answers}.",
                split,
            )


def _check_answers(examples: dict[str, list["Example"]], asked: "Asked") -> None:
    """Refuse a split whose answers all have other names than those to train on, and warn of single ones.

    Raises:
        InputError: there is one.
    """
    from ..shares import warn_of

    for split, found in examples.items():
        if not asked.labels:
            continue
        unknown = [each for each in found if not set(each.answer) <= set(asked.labels)]
        if len(unknown) == len(found):
            raise InputError(
                f"answers of {split} should be among those of the examples to train on, {', '.join(asked.labels)}, but "
                f"none is; the first is {' '.join(unknown[0].answer)[:80]}.",
                split,
            )
        what = "have an answer that no example to train on has, and count as wrong."
        for said in warn_of(len(unknown), len(found), what, f"examples of {split}"):
            warn(said)


def _warn_of_shared(
    examples: dict[str, list["Example"]], asked: "Asked", out: Path, before: Mapping[str, Mapping[str, Any]]
) -> None:
    """Count what two splits have in common, those of earlier runs included, of which the sentences are known."""
    from ..shares import warn_of
    from ..text.example_files import SIDES, read_column

    texts: dict[str, list[tuple[str, ...]]] = {
        split: list(zip(*(read_column(out, split, side, of["examples"]) for side in SIDES[: asked.sentences])))
        for split, of in before.items()
    }
    texts |= {split: [each.texts for each in found] for split, found in examples.items()}
    for split, other in (("valid", "train"), ("test", "train"), ("test", "valid")):
        if split not in texts or other not in texts or {split, other} <= before.keys():
            continue
        what = f"are among those of {other}, too."
        asks: dict[str, list[Any]] = {each: texts[each] for each in (split, other)}
        if asked.word and {split, other} <= examples.keys():
            asks = {each: [(one.texts, one.words) for one in examples[each]] for each in asks}
        elif asked.word:
            what = f"have a sentence of those of {other}."
        there = set(asks[other])
        known = sum(each in there for each in asks[split])
        for said in warn_of(known, len(asks[split]), what, f"examples of {split}"):
            warn(said)


def _say(examples: dict[str, list["Example"]], asked: "Asked", kept: dict[str, Any]) -> None:
    """How much of everything there is."""
    from ..shares import warn_of
    from ..text.labelled_text import CLASSES, TAGS

    for split, found in examples.items():
        words = f", {sum(len(each.answer) for each in found)} words" if asked.answers == TAGS else ""
        print(f"{split}: {len(found)} examples{words}")
        empty = sum(not all(each.texts) for each in found)
        for said in warn_of(empty, len(found), "have a sentence without a word.", f"examples of {split}"):
            warn(said)
    if asked.labels:
        print(printable(f"answers: {', '.join(asked.labels)}"))
    if asked.answers == CLASSES and len(asked.labels) > _FEW and all(map(_is_number, asked.labels)):
        warn(
            f"the {len(asked.labels)} answers are all numbers, such as {asked.labels[0]}, and each is a class "
            "of its own, 3.0 another than 3.00: give --values where a number is to be told."
        )
    if kept:
        print(f"{', '.join(sorted(kept))}: as before")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
