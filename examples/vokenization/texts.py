"""Raw files -> the texts of this recipe: captions with their photos, text for language models, and tasks.

    python texts.py --data ../shared/data --out out

Writes
OUT/captions/{train,valid}.tsv, key and caption of the training and development photos, and OUT/shuffled/, the same with
captions of other photos; OUT/photos.keys, the photo of each row of the data's arrays; OUT/candidates, the training
ones; OUT/text/{train,valid}.txt, all text at hand, and a part of each source that is kept out; OUT/text/captions.txt
and OUT/text/wiki.txt, equally many words of each (Table 4); and OUT/tasks/NAME/{train,dev}.jsonl,
with the sentences of the former in sentences.txt.

A sentence of a task's development part is never in the text that language models learn from.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterable, Iterator
from html import unescape
from pathlib import Path

from visual_grounding.errors import InputError
from visual_grounding.storage.lines import read_lines

# Of each source, one run of lines in so many. Lines that stand together tell of one another, as captions of a photo
# do: who learned from some would know the others, and who is asked of single lines has nothing to read.
KEPT_OUT, RUN = 40, 20
NO_TEXT = ("rte", "mrpc", "stsb")  # tasks of `--full` alone, whose sentences no language model learns from
TASK_ROWS = 9000  # of a task's training part: what is at hand of most
SHUFFLED_SEED = 1


def main() -> int:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the data's folder")
    parser.add_argument("--out", type=Path, required=True, help="where to write")
    parser.add_argument("--limit", type=int, help="rows of each file to keep, to try the recipe")
    args = parser.parse_args()
    try:
        write_captions(args.data / "flickr8k", args.out, args.limit)
        tasks = dict(read_tasks(args.data / "downstream", args.limit))
        for name, parts in tasks.items():
            for part, rows in parts.items():
                write(
                    args.out / "tasks" / name / f"{part}.jsonl", (json.dumps(row, ensure_ascii=False) for row in rows)
                )
            write(
                args.out / "tasks" / name / "sentences.txt", (text for row in parts["train"] for text in texts_of(row))
            )
            print(f"task {name}: {len(parts['train'])} rows to learn from, {len(parts['dev'])} to measure on")
        write_text(args.data, args.out / "text", tasks, args.limit)
    except InputError as error:
        print(f"texts.py: {error}", file=sys.stderr)
        return 2
    return 0


def write(path: Path, lines: Iterable[str]) -> int:
    """Write lines; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [f"{line}\n" for line in lines]
    path.write_text("".join(written), encoding="utf-8")
    return len(written)


def read_rows(path: Path, columns: int, header: bool = True, separator: str = "\t") -> Iterator[list[str]]:
    """Rows of a table; a row of another width is refused."""
    for number, line in enumerate(read_lines(path)):
        if (header and number == 0) or not line:
            continue
        row = line.split(separator)
        if len(row) < columns:
            raise InputError(f"{path}:{number + 1} should have {columns} columns, but has {len(row)}.")
        yield row


def write_captions(data: Path, out: Path, limit: int | None) -> None:
    """Captions for the matcher, and the photos."""
    splits = {"train": "train", "valid": "dev"}
    rows = list(read_rows(data / "captions.tsv", 4))
    for name, split in splits.items():
        captions = [(key, caption) for key, _, caption, of in rows if of == split][:limit]
        write(out / "captions" / f"{name}.tsv", ("\t".join(row) for row in captions))
        # The captions of other photos: whole photos change places, so that no caption keeps its own.
        keys = list(dict.fromkeys(key for key, _ in captions))
        others = keys[:]
        random.Random(SHUFFLED_SEED).shuffle(others)
        swapped = dict(zip(others, others[1:] + others[:1]))
        write(out / "shuffled" / f"{name}.tsv", (f"{swapped[key]}\t{caption}" for key, caption in captions))
    images = list(read_rows(data / "images.tsv", 3))
    write(out / "photos.keys", (row[1] for row in images))
    write(out / "candidates", (row[1] for row in images if row[2] == "train"))


def read_tasks(data: Path, limit: int | None) -> Iterator[tuple[str, dict[str, list[dict]]]]:
    """Rows of each task to learn from and to measure on, as `finetune.py` reads them."""

    def sentences(path: Path, names: dict[str, int], most: int | None, header: bool = True) -> list[dict]:
        rows = read_rows(path, 1 + max(names.values()), header)
        return [{name: row[column].strip() for name, column in names.items()} for row in rows][:most]

    pair = {"text": 0, "pair": 1, "label": 2}
    single = {"label": 0, "text": 1}
    most = TASK_ROWS if limit is None else limit
    yield (
        "sst2",
        {
            "train": sentences(data / "sst2/train.tsv", single, most),
            "dev": sentences(data / "sst2/dev.tsv", single, limit),
        },
    )
    for name in ("qnli", "qqp", "mnli"):
        parts = {part: sentences(data / name / f"sample_{part}.tsv", pair, most) for part in ("train", "dev")}
        yield name, parts
    rte = sentences(data / "rte/train.tsv", pair, limit)  # its own development part is kept for others
    yield "rte", {"train": rte[: -len(rte) // 10], "dev": rte[-len(rte) // 10 :]}
    paraphrase = {"label": 0, "text": 3, "pair": 4}
    yield (
        "mrpc",
        {
            part: sentences(data / f"mrpc/msr-para-{name}.tsv", paraphrase, limit)
            for part, name in (("train", "train"), ("dev", "val"))
        },
    )
    graded = {"label": 4, "text": 5, "pair": 6}
    yield (
        "stsb",
        {part: sentences(data / f"stsb/sts-{part}.tsv", graded, limit, header=False) for part in ("train", "dev")},
    )
    yield (
        "codah",
        {
            part: [
                {"text": row[1], "endings": row[2:6], "label": row[6]}
                for row in read_rows(data / f"codah_substitute_for_swag/fold0_{part}.tsv", 7, header=False)
            ][:limit]
            for part in ("train", "dev")
        },
    )
    yield "xquad", questions(data / "squad/xquad.en.json", limit)


def questions(path: Path, limit: int | None) -> dict[str, list[dict]]:
    """Questions of 40 articles to learn from, and of the other 8 to measure on."""
    try:
        articles = json.loads(path.read_text(encoding="utf-8"))["data"]
        rows = [
            [
                {
                    "id": question["id"],
                    "context": paragraph["context"],
                    "question": question["question"],
                    "answers": [(answer["answer_start"], answer["text"]) for answer in question["answers"]],
                }
                for paragraph in article["paragraphs"]
                for question in paragraph["qas"]
            ]
            for article in articles
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} should be questions in SQuAD's format, but can't be read: {error!r}.") from error
    return {
        "train": [row for article in rows[:40] for row in article][:limit],
        "dev": [row for article in rows[40:] for row in article][:limit],
    }


def texts_of(row: dict) -> Iterator[str]:
    """All sentences of a task's row."""
    yield from (row[name] for name in ("text", "pair", "context", "question") if name in row)
    yield from row.get("endings", [])


def letters(sentence: str) -> str:
    """What two writings of a sentence have in common."""
    return "".join(filter(str.isalnum, sentence.lower()))


def write_text(data: Path, out: Path, tasks: dict[str, dict[str, list[dict]]], limit: int | None) -> None:
    """All text at hand, a part kept out, and the two texts of Table 4."""
    kept = {letters(text) for parts in tasks.values() for row in parts["dev"] for text in texts_of(row)}
    kept |= {letters(row[2]) for row in read_rows(data / "flickr8k/captions.tsv", 4) if row[3] != "train"}
    train, valid, sources = [], [], {}
    for name, lines in sources_of(data, tasks):
        found = list(dict.fromkeys(line for line in lines if line))[: None if limit is None else 10 * limit]
        used = [line for line in found if letters(line) not in kept]
        sources[name] = [line for number, line in enumerate(used) if number // RUN % KEPT_OUT]
        train += sources[name]
        valid += [line for number, line in enumerate(used) if number // RUN % KEPT_OUT == 0]
        dropped = len(found) - len(used)
        print(
            f"text {name}: {len(used)} lines, {sum(len(line.split()) for line in used)} words" + f", {dropped} left out"
        )
    known = set(train)
    write(out / "train.txt", train)
    write(out / "valid.txt", (line for line in valid if line not in known))
    captions = [line for name in ("flickr8k", "conceptual captions") for line in sources[name]]
    size = min(sum(len(line.split()) for line in lines) for lines in (captions, sources["wikitext"]))
    for name, lines in (("captions", captions), ("wiki", sources["wikitext"])):
        write(out / f"{name}.txt", first_words(lines, size))


def first_words(lines: Iterable[str], size: int) -> Iterator[str]:
    """As many whole lines as have so many words."""
    for line in lines:
        if size <= 0:
            return
        size -= len(line.split())
        yield line


def sources_of(data: Path, tasks: dict[str, dict[str, list[dict]]]) -> Iterator[tuple[str, Iterable[str]]]:
    """Lines of each source, as they were written; Moses' `&apos;` and the like are characters again."""
    texts = data / "downstream"

    def plain(*names: str) -> Iterator[str]:
        for name in names:
            yield from (unescape(line).strip() for line in read_lines(texts / name))

    yield "wikitext", plain("wikitext103/valid.txt", "wikitext103/test.txt")
    captions = read_rows(data / "flickr8k/captions.tsv", 4)
    yield "flickr8k", (row[2] for row in captions if row[3] == "train")
    yield "conceptual captions", plain("conceptual_captions/validation_captions.txt")
    yield "news and parliament", plain(
        "wmt14_ende/opennmt_train10k.en", "wmt14_ende/newstest2013.en", "wmt14_ende/newstest2014.en",
        "wmt16_enro/newsdev2016.en", "wmt16_enro/newstest2016.en",
    )  # fmt: skip
    for name, parts in tasks.items():
        if name not in NO_TEXT:
            yield name, (text for row in parts["train"] for text in texts_of(row))


if __name__ == "__main__":
    sys.exit(main())
