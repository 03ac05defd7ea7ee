"""Make the quickstart's world: pictures, captions, and English-German sentences that only pictures disambiguate.

    python examples/quickstart/world.py --out DIR --seed 1

DIR/images/pairs/KEY                            the sentence pairs' own pictures, one thing in one scene each
DIR/images/collection/KEY                       the captioned pictures, to learn retrieval from and to search in
DIR/captions.{train,valid}.tsv                  KEY<TAB>English caption
DIR/text/{train,valid,paired,retrieved}.{en,de} one tokenised sentence a line
DIR/text/{train,valid,paired}.keys              the line's own picture; `retrieved` has none, it must be found
DIR/text/{paired,retrieved}.answers.tsv         line (from 1), English noun, its German, the other sense's German

What is where, so that each way of grounding has its own test:

- train: an ambiguous noun stands in neutral scenes only ("the bat on the table"), with its own picture; its first sense
  is the more frequent one (3:2), as in real text. Cues ("in the cave") stand with every unambiguous noun equally often.
- paired: neutral sentences, each once with a picture of either sense. The two pictures differ in nothing but the thing.
- retrieved: sentences with a cue, every sense and cue equally often.
- captions: ambiguous nouns with their cues and without, unambiguous nouns in all scenes.

So in both tests whoever answers one sense for a noun is right half of the time. No picture is in two of the splits,
and no test sentence is in train. Same seed, same bytes.
"""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path
from typing import TypeVar

import numpy as np
from drawing import COLOURS, PLACES, SIZES, Look, draw_picture
from language import (
    AMBIGUOUS,
    CAPTIONS,
    CUES,
    NEUTRAL,
    OPINIONS,
    PLACE_PHRASES,
    SENTENCES,
    UNAMBIGUOUS,
    Noun,
    english_words,
    german_words,
)

T = TypeVar("T")
TRAIN_ROWS = (60, 40)  # of the first and the second sense of each ambiguous noun
TRAIN_ROWS_PER_CUE = 4  # of each unambiguous noun with each cue
TRAIN_ROWS_NEUTRAL = 40  # of each unambiguous noun in neutral scenes
VALID_ROWS = 6  # of each sense, and of each unambiguous noun with cues and without
PAIRED_ROWS = 12  # of each sense
RETRIEVED_ROWS_PER_CUE = 6  # of each sense with each cue
CAPTIONED_PER_CUE = 16  # pictures of each sense in each of its scenes
CAPTIONED_OTHERS_PER_CUE = 2  # pictures of each unambiguous noun in each scene
CAPTIONED_NEUTRAL = 6  # pictures of each noun in neutral scenes
CAPTIONS_PER_PICTURE = 2


@dataclass(frozen=True)
class Row:
    """One sentence pair and what its picture shows; two rows with the same `state` differ in nothing but the noun."""

    noun: Noun
    scene: str
    look: Look
    english: str
    german: str
    state: tuple[int, ...]  # seeds the picture's random numbers


class World:
    """Draws rows from one stream of random numbers, so that the seed fixes everything."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._rng = np.random.default_rng(seed)
        self._pictures = 0
        self.tested: set[str] = set()  # English sentences of the tests: each once, none of them in train or valid

    def _choose(self, options: Iterable[str]) -> str:
        return str(self._rng.choice(list(options)))

    def _look_and_words(self, scene: str) -> tuple[Look, tuple[str, ...], tuple[str, str]]:
        """What the picture looks like, adjectives that are true of it, and where the thing is in both languages."""
        look = Look(self._choose(COLOURS), self._choose(SIZES), self._choose(PLACES))
        first = [self._choose([look.size, look.size, look.size, *OPINIONS])] if self._rng.uniform() < 0.5 else []
        colour = [look.colour] if self._rng.uniform() < 0.4 else []
        place = CUES.get(scene) or NEUTRAL[scene]
        return look, (*first, *colour), place if place[0] else PLACE_PHRASES[look.place]

    def _next_state(self) -> tuple[int, ...]:
        self._pictures += 1
        return self.seed, self._pictures

    def rows(self, senses: tuple[Noun, ...], scene: str) -> list[Row]:
        """One English sentence; a row for each sense of its noun, with pictures alike in all but the thing."""
        look, adjectives, (place_en, place_de) = self._look_and_words(scene)
        english, german = SENTENCES[self._rng.integers(len(SENTENCES))]
        quality = self._choose(OPINIONS)
        sentence = english_words(english, senses[0], adjectives, place_en, quality)
        state = self._next_state()
        return [
            Row(noun, scene, look, sentence, german_words(german, noun, adjectives, place_de, quality), state)
            for noun in senses
        ]

    def test_rows(self, senses: tuple[Noun, ...], scene: str) -> list[Row]:
        """Rows with a sentence that no test row has yet."""
        while (rows := self.rows(senses, scene))[0].english in self.tested:
            pass
        self.tested.add(rows[0].english)
        return rows

    def untested_row(self, noun: Noun, scene: str) -> Row:
        """A row with a sentence that no test has."""
        while (row := self.rows((noun,), scene)[0]).english in self.tested:
            pass
        return row

    def neutral(self, count: int) -> list[str]:
        """`count` neutral scenes, as equally often as can be."""
        scenes = list(NEUTRAL) * (count // len(NEUTRAL) + 1)
        return scenes[:count]

    def captions(self, row: Row) -> list[str]:
        """Several English captions for the row's picture."""
        place = (CUES.get(row.scene) or NEUTRAL[row.scene])[0] or PLACE_PHRASES[row.look.place][0]
        adjectives = [(), (row.look.colour,), (row.look.size,), (row.look.size, row.look.colour)]
        patterns = self._rng.permutation(len(CAPTIONS))[:CAPTIONS_PER_PICTURE]
        return [english_words(CAPTIONS[i], row.noun, adjectives[self._rng.integers(4)], place, "") for i in patterns]

    def shuffled(self, rows: list[T]) -> list[T]:
        """In a random order."""
        return [rows[i] for i in self._rng.permutation(len(rows))]


def build_splits(world: World) -> dict[str, list[Row]]:
    """All rows: train, valid, paired, retrieved (tests first), and the captioned pictures of both collections."""
    paired = [row for pair in AMBIGUOUS for s in world.neutral(PAIRED_ROWS) for row in world.test_rows(pair, s)]
    senses = [sense for pair in AMBIGUOUS for sense in pair]
    cued = [(sense, cue) for sense in senses for cue in sense.cues]
    retrieved = [row for n, cue in cued for _ in range(RETRIEVED_ROWS_PER_CUE) for row in world.test_rows((n,), cue)]
    valid = [row for pair in AMBIGUOUS for s in world.neutral(VALID_ROWS) for row in world.rows(pair, s)]
    train: list[Row] = []
    for pair in AMBIGUOUS:
        for noun, count in zip(pair, TRAIN_ROWS, strict=True):
            train += [world.untested_row(noun, scene) for scene in world.neutral(count)]
    captioned = [world.rows((n,), cue)[0] for n, cue in cued for _ in range(CAPTIONED_PER_CUE)]
    captioned_valid = [world.rows((n,), cue)[0] for n, cue in cued]
    for noun in UNAMBIGUOUS:
        train += [world.untested_row(noun, cue) for cue in CUES for _ in range(TRAIN_ROWS_PER_CUE)]
        train += [world.untested_row(noun, scene) for scene in world.neutral(TRAIN_ROWS_NEUTRAL)]
        cues = world.shuffled(list(CUES))[:VALID_ROWS]
        valid += [world.untested_row(noun, scene) for scene in [*world.neutral(VALID_ROWS), *cues]]
        captioned += [world.rows((noun,), cue)[0] for cue in CUES for _ in range(CAPTIONED_OTHERS_PER_CUE)]
        captioned_valid += [world.rows((noun,), scene)[0] for scene in cues[:4]]
    for noun in [*senses, *UNAMBIGUOUS]:
        captioned += [world.rows((noun,), scene)[0] for scene in world.neutral(CAPTIONED_NEUTRAL)]
    splits = {"train": train, "valid": valid, "paired": paired, "retrieved": retrieved}
    splits |= {"captions.train": captioned, "captions.valid": captioned_valid}
    return {name: world.shuffled(rows) for name, rows in splits.items()}


def _draw(path: Path, row: Row) -> None:
    picture = draw_picture(row.noun.drawing, row.scene, row.look, np.random.default_rng(row.state))
    picture.save(path, compress_level=1)


def write_world(out: Path, seed: int) -> dict[str, int]:
    """Draw and write everything; returns the number of rows of each split."""
    world = World(seed)
    splits = build_splits(world)
    pictured = [(name, i) for name, rows in splits.items() if name != "retrieved" for i in range(len(rows))]
    order = np.random.default_rng([seed, 0]).permutation(len(pictured))  # a key says nothing about its split
    keys = {place: f"{number:05d}.png" for place, number in zip(pictured, order, strict=True)}
    for folder in ("images/pairs", "images/collection", "text"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    folders = {name: out / "images" / ("collection" if name.startswith("captions") else "pairs") for name in splits}
    with Pool() as pool:  # a picture depends on its row alone, so the number of processes changes nothing
        jobs = [(folders[name] / key, splits[name][i]) for (name, i), key in keys.items()]
        pool.starmap(_draw, jobs, chunksize=64)
    other = {a.german: b.german for pair in AMBIGUOUS for a, b in (pair, pair[::-1])}
    for name, rows in splits.items():
        named = [keys.get((name, i), "") for i in range(len(rows))]
        if name.startswith("captions"):
            lines = [
                f"{key}\t{caption}" for key, row in zip(named, rows, strict=True) for caption in world.captions(row)
            ]
            _write_lines(out / f"{name}.tsv", lines)
            continue
        _write_lines(out / "text" / f"{name}.en", (row.english for row in rows))
        _write_lines(out / "text" / f"{name}.de", (row.german for row in rows))
        if name != "retrieved":
            _write_lines(out / "text" / f"{name}.keys", named)
        if name in ("paired", "retrieved"):
            nouns = [row.noun for row in rows]
            answers = (f"{i}\t{n.english}\t{n.german}\t{other[n.german]}" for i, n in enumerate(nouns, start=1))
            _write_lines(out / "text" / f"{name}.answers.tsv", answers)
    return {name: len(rows) for name, rows in splits.items()}


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    """Parse the command line and write the world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write; files of an earlier run are replaced")
    parser.add_argument("--seed", type=int, default=1, help="another seed, another world")
    options = parser.parse_args()
    counts = write_world(options.out, options.seed)
    print(f"world with seed {options.seed} in {options.out}: " + ", ".join(f"{n} {name}" for name, n in counts.items()))


if __name__ == "__main__":
    main()
