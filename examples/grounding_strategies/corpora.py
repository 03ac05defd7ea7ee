"""Raw files -> captions with their photos, text without, word vectors, a noun collection; overlaps with the tasks.

    python corpora.py --data ../shared/data --out out

Writes
OUT/captions/{train,valid}.txt and .keys, the captions of the training and development photos and whose they are;
OUT/captions.tsv, the former as a collection, key and caption; OUT/photos.keys, the photo of each row of the data's
arrays; OUT/wiki/{train,valid,test}.txt, passages of WikiText; OUT/vectors.txt, word vectors of the text to learn from;
OUT/nouns.tsv, a noun collection: what a detector knows the name of, and the photos whose captions name it;
OUT/regions/N.npy, the N best regions of each photo; and OUT/overlap.json, how many sentences of each task are captions
of the collection.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from zlib import crc32

import numpy as np

from visual_grounding.errors import InputError
from visual_grounding.storage.artefact import write_json
from visual_grounding.storage.lines import read_lines
from visual_grounding.text.resemblance import letters

UNKNOWN = "<unk>"  # WikiText's, for a rare word
VECTOR_SIZE = 100
REGIONS = (1, 4, 8, 16)
LEAST_SCORE = 0.3


def main() -> int:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the data's folder")
    parser.add_argument("--out", type=Path, required=True, help="where to write")
    parser.add_argument("--words", type=int, default=22, help="of a passage, at most; 10 words are about 11 pieces")
    parser.add_argument("--limit", type=int, help="rows of each file to keep, to try the recipe")
    args = parser.parse_args()
    try:
        collection = write_captions(args.data / "flickr8k", args.out, args.limit)
        wiki = write_wiki(args.data / "downstream/wikitext103", args.out / "wiki", args.words, args.limit)
        write_vectors([*(caption for _, caption in collection), *wiki], args.out / "vectors.txt")
        write_regions(args.data / "flickr8k/regions", args.out / "regions")
        write_nouns(args.data / "flickr8k/regions/label_names.txt", collection, args.out / "nouns.tsv")
    except InputError as error:
        print(f"corpora.py: {error}", file=sys.stderr)
        return 2
    return 0


def write_regions(data: Path, out: Path) -> None:
    """OUT/regions/N.npy: features of the N regions of each photo that the detector is surest of, score 0.3 and more."""
    features, scores = np.load(data / "features.npy"), np.load(data / "scores.npy")  # (I, 16, F), (I, 16)
    features = np.where((scores >= LEAST_SCORE)[..., None], features, 0)
    out.mkdir(parents=True, exist_ok=True)
    for regions in REGIONS:
        np.save(out / f"{regions}.npy", features[:, :regions].astype(np.float16))


def write(path: Path, lines: Iterable[str]) -> None:
    """Write lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_captions(data: Path, out: Path, limit: int | None) -> list[tuple[str, str]]:
    """Captions and photos; returns those of the training photos."""
    rows = [line.split("\t") for line in read_lines(data / "captions.tsv")[1:]]
    found = {}
    for name, split in (("train", "train"), ("valid", "dev")):
        found[name] = [(key, " ".join(caption.split())) for key, _, caption, of in rows if of == split][:limit]
        write(out / f"captions/{name}.txt", (caption for _, caption in found[name]))
        write(out / f"captions/{name}.keys", (key for key, _ in found[name]))
    write(out / "captions.tsv", ("\t".join(pair) for pair in found["train"]))
    write(out / "photos.keys", (line.split("\t")[1] for line in read_lines(data / "images.tsv")[1:]))
    return found["train"]


def passages(lines: Iterable[str], most: int) -> Iterator[str]:
    """Parts of paragraphs, each at most `most` words long and as long as all others of its paragraph, but for one word;
    those with a word that WikiText doesn't know are left out.

    >>> list(passages(["= Head =", "", "a b c", "<unk> a b c"], most=2))
    ['a', 'b c', 'b c']
    """
    for line in lines:
        words = line.replace(" @-@ ", "-").replace(" @,@ ", ",").replace(" @.@ ", ".").split()
        if not words or words[0] == "=":
            continue
        parts = -(-len(words) // most)
        for part in range(parts):
            passage = words[len(words) * part // parts : len(words) * (part + 1) // parts]
            if UNKNOWN not in passage:  # tokenizers take it for three words, that a model would learn to tell
                yield " ".join(passage)


def write_wiki(data: Path, out: Path, most: int, limit: int | None) -> list[str]:
    """WikiText's validation part to learn from, the halves of its test part to develop and to test on."""
    learned = list(passages(read_lines(data / "valid.txt"), most))[:limit]
    lines = read_lines(data / "test.txt")
    middle = len(lines) // 2
    write(out / "train.txt", learned)
    write(out / "valid.txt", list(passages(lines[:middle], most))[:limit])
    write(out / "test.txt", list(passages(lines[middle:], most))[:limit])
    return learned


def words_of(text: str) -> list[str]:
    """Lower-cased words without punctuation."""
    return [word for word in (word.strip(".,;:!?\"'()") for word in text.lower().split()) if word]


def write_vectors(texts: Iterable[str], path: Path) -> None:
    """Word vectors by gensim's word2vec; by one thread and a fixed hash, so that a rerun gives the same."""
    from gensim.models import Word2Vec

    model = Word2Vec(
        [words_of(text) for text in texts],
        vector_size=VECTOR_SIZE,
        window=5,
        min_count=2,
        sg=1,
        epochs=10,
        seed=1,
        workers=1,
        hashfxn=lambda word: crc32(str(word).encode()),
    )
    model.wv.save_word2vec_format(str(path))


def write_nouns(names: Path, collection: list[tuple[str, str]], path: Path) -> None:
    """Photos of each thing that the detector has a name for: those whose captions name it, one or several."""
    photos: dict[str, dict[str, None]] = {}
    known = read_lines(names)
    for key, caption in collection:
        text = f" {' '.join(words_of(caption))} "
        for name in known:
            if f" {name} " in text or f" {name}s " in text:
                photos.setdefault(name, {})[key] = None
    write(path, (f"{name}\t\t{key}" for name, keys in photos.items() for key in keys))
    print(f"nouns: {len(photos)} of {len(known)} object names are in captions")


def overlap(collection: Iterable[str], sentences: Iterable[str]) -> dict[str, int]:
    """How many sentences are captions of the collection, whatever their case and punctuation.

    >>> overlap(["A dog runs."], ["a dog runs", "a cat"])
    {'sentences': 2, 'captions': 1}
    """
    known = {letters(caption) for caption in collection}
    found = [letters(sentence) in known for sentence in sentences]
    return {"sentences": len(found), "captions": sum(found)}


def write_overlap(out: Path, tasks: Iterable[Path]) -> None:
    """OUT/overlap.json, of each split of each task, and of the lines whose perplexity is asked where they are there."""
    collection = [line.split("\t")[1] for line in read_lines(out / "captions.tsv")]
    asked = {
        f"{name}.{split}": out / name / f"{split}.txt" for name in ("captions", "wiki") for split in ("valid", "test")
    }
    found = {name: overlap(collection, read_lines(path)) for name, path in asked.items() if path.exists()}
    found |= {
        f"{task.name}.{path.stem}.{side}": overlap(collection, read_lines(path.with_suffix(f".{side}")))
        for task in tasks
        for path in sorted(task.glob("*.first"))
        for side in ("first", "second")
        if path.with_suffix(f".{side}").exists()
    }
    write_json(out / "overlap.json", found)


if __name__ == "__main__":
    sys.exit(main())
