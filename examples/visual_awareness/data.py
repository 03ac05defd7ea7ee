"""Raw files of Flickr8k and Multi30k -> captions, sentences (plain, noisy, masked nouns), features, overlap counts.

    python data.py --data ../shared/data --language de --out out

Writes OUT/captions/<split>.tsv, OUT/arrays/*.npy with keys beside, OUT/plain/<split>.{en,de,keys},
OUT/masked/<split>.{en,de,keys}, OUT/noisy/{valid,test}.{en,de,keys} (rows with a photo, words of their sources missing)
and OUT/overlap.json. Line i of a .keys file is the photo of sentence i, empty for none.
"""

import argparse
import json
import random
import re
import sys
from pathlib import Path

import numpy as np

from visual_grounding.errors import InputError
from visual_grounding.storage.lines import read_lines

sys.path.insert(0, str(Path(__file__).parents[1] / "multi30k"))
from rows import WITH_PHOTOS, Row, mask_nouns, read_noun_positions, read_rows, read_table, write_lines, write_rows

MASK = "[MASK]"
CAPTION_SPLITS = {"train": "train", "dev": "valid", "test": "test"}
ARRAYS = {"pooled": "mobilenet1.0_pooled1024", "grid": "mobilenet1.0_grid4x4_pca192"}
# Our split -> files that follow one another. `photos` are the development rows that have a photo: none is trained on.
PLAIN = {
    "train": ["multi30k/train"],
    "valid": ["multi30k/val"],
    "photos": WITH_PHOTOS["valid"],
    "test.photos": WITH_PHOTOS["test"],
    "test.2016": ["multi30k/test_2016_flickr"],
    "test.2017": ["multi30k/test_2017_flickr"],
    "test.coco": ["multi30k/test_2017_mscoco"],
}
MISSING, NOISE_SEED = 0.2, 1  # of the words of noisy sources


def normalise(sentence: str) -> str:
    """Letters and digits alone, so that tokenisation, case and punctuation make no difference.

    >>> normalise("A dog &apos;s ball .") == normalise("a dog's ball")
    True
    """
    for entity, character in (("&apos;", "'"), ("&quot;", '"'), ("&amp;", "&")):
        sentence = sentence.replace(entity, character)
    return re.sub(r"[\W_]", "", sentence.lower())


def photo_number(name: str) -> str:
    """The number of a photo on Flickr, which Flickr8k and Multi30k name it by.

    >>> photo_number("106490881_5a2dd9b7bd.jpg"), photo_number("106490881.jpg")
    ('106490881', '106490881')
    """
    return re.split(r"[_.]", name, maxsplit=1)[0]


def count_overlap(
    collection: set[str], captions: list[str], splits: dict[str, list[Row]], photos: dict[str, list[str]]
) -> dict[str, dict[str, int]]:
    """What test text has in common with the image collection, its captions and the training sentences.

    Args:
        collection: keys of the photos that can be retrieved.
        captions: their captions, which the retriever learns from.
        splits: rows of each split, `train` among them.
        photos: for some splits the published photo name of each line.

    Returns:
        for each split: its rows, rows whose own photo can be retrieved, rows whose sentence is a caption of the
        collection, rows whose sentence is a training sentence.
    """
    numbers = {photo_number(key) for key in collection}
    captioned = {normalise(caption) for caption in captions}
    trained = {normalise(row.source) for row in splits["train"]}
    counts = {}
    for split, rows in splits.items():
        own = [row.photo in collection for row in rows]
        if split in photos:
            own = [mine or photo_number(name) in numbers for mine, name in zip(own, photos[split], strict=True)]
        counts[split] = {
            "rows": len(rows),
            "own_photo_in_collection": sum(own),
            "sentence_is_a_caption_of_the_collection": sum(normalise(row.source) in captioned for row in rows),
            "sentence_is_a_training_sentence": sum(normalise(row.source) in trained for row in rows),
        }
    return counts


def write_photos(flickr: Path, out: Path, limit: int | None) -> tuple[set[str], list[str]]:
    """Captions of each split, features of all photos and of the collection; returns the collection and its captions.

    The collection is the training photos: nothing that is validated or tested on can be retrieved.
    """
    images = read_table(flickr / "images.tsv")
    chosen = [row for row, image in enumerate(images) if image["split"] == "train"][:limit]
    collection = {images[row]["image"] for row in chosen}
    parts = {"collection": chosen, "all": range(len(images))}
    (out / "arrays").mkdir(parents=True, exist_ok=True)
    for kind, name in ARRAYS.items():
        features = np.load(flickr / "features" / f"{name}.npy").astype(np.float32)  # (images, F) or (images, R, F)
        # After a ReLU all photos share one large direction, which tells nothing: the mean of the training photos goes.
        training = [row for row, image in enumerate(images) if image["split"] == "train"]
        features -= features[training].reshape(-1, features.shape[-1]).mean(axis=0)
        for part, rows in parts.items():
            np.save(out / "arrays" / f"{kind}.{part}.npy", features[list(rows)].astype(np.float16))
    for part, rows in parts.items():
        write_lines(out / "arrays" / f"{part}.keys", (images[row]["image"] for row in rows))
    captions = read_table(flickr / "captions.tsv")
    for split, name in CAPTION_SPLITS.items():
        mine = [row for row in captions if row["split"] == split]
        kept = [row for row in mine if row["image"] in collection] if split == "train" else mine[: limit and 5 * limit]
        write_lines(out / "captions" / f"{name}.tsv", (f"{row['image']}\t{row['caption']}" for row in kept))
    return collection, [row["caption"] for row in captions if row["image"] in collection]


def lose_words(sentence: str, chance: random.Random) -> str:
    """A sentence without about every fifth of its words; one word always stays.

    >>> lose_words("a dog runs through the grass .", random.Random(4))
    'a runs grass .'
    """
    words = sentence.split()
    kept = [word for word in words if chance.random() >= MISSING]
    return " ".join(kept or words[:1])


def write_sentences(data: Path, out: Path, language: str, limit: int | None) -> dict[str, list[Row]]:
    """Plain, noisy and masked sentences of each split; returns the plain ones."""
    flickr = data / "flickr8k"
    nouns = {}
    for split in ("train", "val"):
        nouns[split] = read_noun_positions(data / "downstream" / "multi30k_masking" / f"{split}.masks.tsv")
    plain: dict[str, list[Row]] = {}
    for kind, splits in (("plain", PLAIN), ("masked", WITH_PHOTOS)):
        for split, names in splits.items():
            rows = [row for name in names for row in read_rows(flickr / name, language)[:limit]]
            if kind == "plain":
                plain[split] = rows
            else:
                rows = [row._replace(source=mask_nouns(row.source, *nouns[row.split][row.line], MASK)) for row in rows]
            write_rows(out / kind / split, rows, language)
    for split, name in (("valid", "photos"), ("test", "test.photos")):
        chance = random.Random(NOISE_SEED)
        rows = [row._replace(source=lose_words(row.source, chance)) for row in plain[name]]
        write_rows(out / "noisy" / split, rows, language)
    return plain


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds flickr8k/ and downstream/")
    parser.add_argument("--language", choices=("de", "fr"), default="de", help="translate from English into this")
    parser.add_argument("--limit", type=int, help="keep only so many rows of each file, to try the recipe")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    args = parser.parse_args()
    flickr = args.data / "flickr8k"
    collection, captions = write_photos(flickr, args.out, args.limit)
    splits = write_sentences(args.data, args.out, args.language, args.limit)
    names = {
        split: [name for part in parts for name in read_lines(flickr / f"{part}.images.txt")[: args.limit]]
        for split, parts in PLAIN.items()
    }
    counts = count_overlap(collection, captions, splits, names)
    overlap = {"collection": len(collection), "captions": len(captions), "splits": counts}
    (args.out / "overlap.json").write_text(json.dumps(overlap, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(overlap, indent=2))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
