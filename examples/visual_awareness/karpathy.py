"""Karpathy's split of COCO or Flickr30k -> train.tsv, valid.tsv, test.tsv (`key<TAB>caption`) and all.txt (every key).

    python karpathy.py --json dataset_coco.json --out captions

A key is the photo's path below the folder of photos, such as `val2014/COCO_val2014_000000391895.jpg`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

SPLITS = {"train": "train", "restval": "train", "val": "valid", "test": "test"}


def read_split(images: list[dict[str, Any]]) -> dict[str, list[tuple[str, str]]]:
    """Key and caption of every sentence; white space becomes single blanks, an empty caption is left out."""
    found: dict[str, list[tuple[str, str]]] = {split: [] for split in SPLITS.values()}
    for image in images:
        key = "/".join(part for part in (image.get("filepath"), image["filename"]) if part)
        captions = (" ".join(sentence["raw"].split()) for sentence in image["sentences"])
        found[SPLITS[image["split"]]] += [(key, caption) for caption in captions if caption]
    return found


def main() -> None:
    """Read and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="dataset_coco.json or dataset_flickr30k.json")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    args = parser.parse_args()
    captions = read_split(json.loads(args.json.read_text(encoding="utf-8"))["images"])
    args.out.mkdir(parents=True, exist_ok=True)
    for split, pairs in captions.items():
        lines = "".join(f"{key}\t{caption}\n" for key, caption in pairs)
        (args.out / f"{split}.tsv").write_text(lines, encoding="utf-8")
        print(f"{split}: {len(pairs)} captions of {len({key for key, _ in pairs})} photos")
    keys = dict.fromkeys(key for pairs in captions.values() for key, _ in pairs)
    (args.out / "all.txt").write_text("".join(f"{key}\n" for key in keys), encoding="utf-8")


if __name__ == "__main__":
    main()
