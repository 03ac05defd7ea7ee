"""Multi30k rows that have a photo of Flickr8k, plain and with masked nouns, and that photo's other captions.

    python with_photos.py --data ../shared/data --language de --mask '<mask>' --out out

Writes OUT/plain/ and OUT/masked/<split>.{en,de,keys}; OUT/plain/<split>.nouns, the positions of each line's nouns, -1
for none; OUT/text/{train,valid}.{en,de}, all rows of Multi30k, most without a photo; OUT/captions/train.{en,keys},
every caption of the training photos, tokenised as Multi30k is; and OUT/photos.keys, the photo of each row of the data's
arrays.
"""

import argparse
import sys
from pathlib import Path

from rows import (
    WITH_PHOTOS,
    Row,
    mask_nouns,
    read_noun_positions,
    read_rows,
    read_table,
    write_lines,
    write_rows,
)
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from visual_grounding.errors import InputError

TEXT = {"train": "multi30k/train", "valid": "multi30k/val"}


class Moses:
    """Tokenises as Multi30k's lower-cased, normalised, tokenised files are.

    >>> Moses()("A dog's ball, red.")
    'a dog &apos;s ball , red .'
    """

    def __init__(self) -> None:
        self.normaliser = MosesPunctNormalizer("en")
        self.tokenizer = MosesTokenizer("en")

    def __call__(self, caption: str) -> str:
        return self.tokenizer.tokenize(self.normaliser.normalize(caption), return_str=True).lower()


def write_sentences(data: Path, out: Path, language: str, mask: str, limit: int | None) -> dict[str, list[Row]]:
    """Plain and masked rows, and where their nouns are; returns the plain ones of each split."""
    positions = {
        split: read_noun_positions(data / "downstream" / "multi30k_masking" / f"{split}.masks.tsv")
        for split in ("train", "val")
    }
    plain = {}
    for split, names in WITH_PHOTOS.items():
        rows = [row for name in names for row in read_rows(data / "flickr8k" / name, language)[:limit]]
        nouns = [positions[row.split][row.line] for row in rows]
        masked = [row._replace(source=mask_nouns(row.source, *noun, mask)) for row, noun in zip(rows, nouns)]
        write_rows(out / "plain" / split, rows, language)
        write_rows(out / "masked" / split, masked, language)
        write_lines(out / "plain" / f"{split}.nouns", (" ".join(map(str, noun[1])) or "-1" for noun in nouns))
        plain[split] = rows
    return plain


def write_text(data: Path, out: Path, language: str, limit: int | None) -> None:
    """All training and validation rows of Multi30k, to learn the pieces from and to train what translates captions."""
    for split, name in TEXT.items():
        write_rows(out / "text" / split, read_rows(data / "flickr8k" / name, language)[: limit and 4 * limit], language)


def write_captions(data: Path, out: Path, limit: int | None) -> int:
    """Captions of the training photos; returns how many."""
    moses = Moses()
    captions = [row for row in read_table(data / "flickr8k" / "captions.tsv") if row["split"] == "train"]
    captions = captions[: limit and 5 * limit]
    write_lines(out / "captions" / "train.en", (moses(row["caption"]) for row in captions))
    write_lines(out / "captions" / "train.keys", (row["image"] for row in captions))
    return len(captions)


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds flickr8k/ and downstream/")
    parser.add_argument("--language", choices=("de", "fr"), default="de", help="translate from English into this")
    parser.add_argument("--mask", required=True, help="what stands for a masked noun")
    parser.add_argument("--limit", type=int, help="keep only so many rows of each file, to try the recipe")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    args = parser.parse_args()
    write_lines(args.out / "photos.keys", (row["image"] for row in read_table(args.data / "flickr8k" / "images.tsv")))
    rows = write_sentences(args.data, args.out, args.language, args.mask, args.limit)
    write_text(args.data, args.out, args.language, args.limit)
    captions = write_captions(args.data, args.out, args.limit)
    print(", ".join(f"{len(found)} {split} rows" for split, found in rows.items()) + f", {captions} captions")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
