"""Captions -> a data folder for training a retriever: <split>.tsv and dict.txt.

  visual-grounding prepare captions --train train.tsv --valid dev.tsv --out data/captions
  fairseq-train data/captions --user-dir "$(visual-grounding user-dir)" --task image_text_matching \\
      --arch visual_semantic_embedding --criterion hardest_negative_triplet --image-features features/all ...

Each file holds `key<TAB>caption` lines; an image may have several. Parquet, the Arrow files of a dataset that Hugging
Face datasets saved, and folders of them are read, too, with --key-column and --caption-column:

  visual-grounding prepare captions --train flickr/train --valid flickr/valid --key-column filename \\
      --caption-column caption --out data/captions

dict.txt holds the words of the training captions,
lower-cased; the same splitter is used when the retriever is. `retrieve` and `report heatmap` read captions as such
lines alone: DIR/train.tsv is those of a table, and needs no --valid.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError, warn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--train", type=Path, required=True, metavar="FILE", help="captions to train on")
    parser.add_argument(
        "--valid",
        type=Path,
        metavar="FILE",
        help="captions to choose the best checkpoint on; a retriever's training needs them, a collection that "
        "`retrieve` finds images in doesn't",
    )
    parser.add_argument("--test", type=Path, metavar="FILE", help="captions to test on, with fairseq-validate")
    parser.add_argument("--key-column", metavar="NAME", help="of tables: names of the images, as in the feature store")
    parser.add_argument(
        "--caption-column",
        nargs="+",
        action="extend",
        metavar="NAME",
        help="of tables: captions, or a list of them in each row; several columns give an image several",
    )
    parser.add_argument("--min-count", type=int, default=1, help="rarer words become <unk> (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="data folder to write")


def _shared(captions: dict[str, list[tuple[str, str]]], split: str, other: str) -> Iterator[str]:
    """What two splits have in common."""
    from ..shares import warn_of

    if split not in captions or other not in captions:
        return
    pairs, images = set(captions[other]), {key for key, _ in captions[other]}
    known = sum(pair in pairs for pair in captions[split])
    yield from warn_of(known, len(captions[split]), f"are among those of {other}, too.", f"captions of {split}")
    seen = sum(key in images for key, _ in captions[split]) - known
    yield from warn_of(seen, len(captions[split]), f"are further ones of images of {other}.", f"captions of {split}")


def _is_same(path: Path, other: Path) -> bool:
    return path.resolve() == other.resolve()


def run(args: argparse.Namespace) -> None:
    """Check the captions and write the folder.

    Raises:
        InputError: a count below 1, a file given for two splits, captions that can't be used, or an output that
            can't be written.
    """
    from ..storage.file_set import check_place
    from ..storage.outside import check_other_files
    from ..storage.text_files import write_text_files
    from ..text.caption_tables import is_table, iterate_caption_tables
    from ..text.captions import read_captions
    from ..text.words import DICTIONARY, count_words

    if args.min_count < 1:
        raise InputError(f"--min-count should be at least 1, but is {args.min_count}.")

    def read(path: Path) -> list[tuple[str, str]]:
        if is_table(path):
            return list(iterate_caption_tables(path, args.key_column, args.caption_column or []))
        return read_captions(path)

    sources = {"train": args.train, "valid": args.valid, "test": args.test}
    columns = [name for name in ("key_column", "caption_column") if getattr(args, name) is not None]
    if columns and not any(is_table(path) for path in sources.values() if path is not None):
        raise InputError("Columns are named, but no file is a table: parquet, or Arrow.", *columns)
    check_other_files({split: [path] for split, path in sources.items() if path is not None})
    captions = {split: read(path) for split, path in sources.items() if path is not None}
    for split, other in (("valid", "train"), ("test", "train"), ("test", "valid")):
        for said in _shared(captions, split, other):
            warn(said)
    words = count_words((caption for _, caption in captions["train"]), args.min_count)
    if not words:
        raise InputError(
            f"--min-count {args.min_count} leaves no word, as none is so frequent in {args.train}. Lower it."
        )
    files = {f"{split}.tsv": (f"{key}\t{caption}" for key, caption in pairs) for split, pairs in captions.items()}
    given = {f"{split}.tsv" for split, path in sources.items() if path and _is_same(path, args.out / f"{split}.tsv")}
    check_place(args.out, {*files, DICTIONARY} - given, DICTIONARY, "train.tsv")
    write_text_files(args.out, {**files, DICTIONARY: (f"{word} {count}" for word, count in words)}, last=DICTIONARY)
    for split, pairs in captions.items():
        print(f"{split}: {len(pairs)} captions of {len({key for key, _ in pairs})} images")
    print(f"dict.txt: {len(words)} words that occur at least {args.min_count} times")
    if args.valid is None and not (args.out / "valid.tsv").exists():
        print(
            "No captions to choose a checkpoint on: to train a retriever, give --valid, or fairseq-train "
            "--disable-validation."
        )
    for split, used in (("valid", "validated"), ("test", "tested")):  # fairseq would read it; it may be someone's own
        left = args.out / f"{split}.tsv"
        if split not in captions and left.exists():
            warn(
                f"{left} was there before and stays as it was, as there is no --{split}. Delete it if it shouldn't "
                f"be {used} on."
            )
