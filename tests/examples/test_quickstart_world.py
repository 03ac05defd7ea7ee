"""The quickstart's world is fair: nothing but the pictures tells the senses, and no test leaks into training."""

import fcntl
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "quickstart"))
import drawing
import language
import world
from other_sense import other_senses

AMBIGUOUS_NAMES = {pair[0].english for pair in language.AMBIGUOUS}


@pytest.fixture(scope="module")
def splits() -> dict[str, list[world.Row]]:
    return world.build_splits(world.World(seed=1))


@pytest.fixture
def small_world(monkeypatch):
    """The same world with fewer pictures."""
    for name, value in {
        "TRAIN_ROWS": (2, 1),
        "TRAIN_ROWS_PER_CUE": 0,
        "TRAIN_ROWS_NEUTRAL": 1,
        "VALID_ROWS": 1,
        "PAIRED_ROWS": 1,
        "RETRIEVED_ROWS_PER_CUE": 1,
        "CAPTIONED_PER_CUE": 1,
        "CAPTIONED_NEUTRAL": 1,
    }.items():
        monkeypatch.setattr(world, name, value)


def draw(row: world.Row) -> np.ndarray:
    return np.asarray(drawing.draw_picture(row.noun.drawing, row.scene, row.look, np.random.default_rng(row.state)))


def test_lexicon_has_distinct_senses_words_drawings_and_cues():
    nouns = [noun for pair in language.AMBIGUOUS for noun in pair] + language.UNAMBIGUOUS
    assert len(language.AMBIGUOUS) >= 12
    assert all(a.english == b.english and not set(a.cues) & set(b.cues) for a, b in language.AMBIGUOUS)
    assert len({noun.german for noun in nouns}) == len(nouns)
    assert {noun.drawing for noun in nouns} == set(drawing.THINGS) and len(drawing.THINGS) == len(nouns)
    assert set(language.CUES) | set(language.NEUTRAL) == set(drawing.SCENES)
    assert {cue for pair in language.AMBIGUOUS for noun in pair for cue in noun.cues} == set(language.CUES)
    assert not {noun.german for noun in nouns if noun.english in AMBIGUOUS_NAMES} & set(language.ACCUSATIVE)


@pytest.mark.parametrize(
    ("pattern", "sense", "expected"),
    [
        ("{ein} ist {place} .", 0, "eine kleine rote Fledermaus ist im Wald ."),
        ("{ein} ist {place} .", 1, "ein kleiner roter Schläger ist im Wald ."),
        ("ich sehe {einen} {place} .", 1, "ich sehe einen kleinen roten Schläger im Wald ."),
        ("wir suchen {den} {place} .", 0, "wir suchen die kleine rote Fledermaus im Wald ."),
        ("wo ist {der} ? {er} ist {place} .", 1, "wo ist der kleine rote Schläger ? er ist im Wald ."),
        ("{der} {place} ist sehr {quality} .", 0, "die kleine rote Fledermaus im Wald ist sehr alt ."),
    ],
)
def test_german_articles_endings_and_pronouns_agree(pattern, sense, expected):
    noun = language.AMBIGUOUS[0][sense]
    assert language.german_words(pattern, noun, ("small", "red"), "im Wald", "old") == expected


def test_german_neuter_and_weak_nouns_are_inflected():
    book, rabbit = (next(n for n in language.UNAMBIGUOUS if n.english == word) for word in ("book", "rabbit"))
    assert language.german_noun_phrase(book, ("big",), definite=False, accusative=True) == "ein großes Buch"
    assert language.german_noun_phrase(rabbit, (), definite=True, accusative=True) == "den Hasen"
    assert language.english_noun_phrase(book, ("old",), definite=False) == "an old book"


def test_train_never_shows_an_ambiguous_noun_with_a_cue_and_cues_uniformly_with_the_others(splits):
    cued = [row for row in splits["train"] + splits["valid"] if row.scene in language.CUES]
    assert not {row.noun.english for row in cued} & AMBIGUOUS_NAMES
    for phrase, _ in language.CUES.values():  # and the words say so as well
        assert not any(
            phrase in row.english and AMBIGUOUS_NAMES & set(row.english.split())
            for row in splits["train"] + splits["valid"]
        )
    counts = Counter((row.noun.english, row.scene) for row in splits["train"] if row.scene in language.CUES)
    assert len(counts) == len(language.UNAMBIGUOUS) * len(language.CUES)
    assert set(counts.values()) == {world.TRAIN_ROWS_PER_CUE}


def test_train_has_the_first_sense_three_times_for_every_two_of_the_second(splits):
    counts = Counter(row.noun.german for row in splits["train"])
    assert {(counts[a.german], counts[b.german]) for a, b in language.AMBIGUOUS} == {(60, 40)}


def test_paired_sentences_come_once_with_each_sense(splits):
    senses = {}
    for row in splits["paired"]:
        senses.setdefault(row.english, []).append(row.noun.german)
        assert row.scene in language.NEUTRAL
    assert len(senses) == len(splits["paired"]) // 2 == 12 * len(language.AMBIGUOUS)
    both = {frozenset((a.german, b.german)) for a, b in language.AMBIGUOUS}
    assert all(len(found) == 2 and frozenset(found) in both for found in senses.values())


def test_retrieved_has_every_sense_and_cue_equally_often_and_each_sentence_once(splits):
    counts = Counter((row.noun.german, row.scene) for row in splits["retrieved"])
    expected = {(noun.german, cue) for pair in language.AMBIGUOUS for noun in pair for cue in noun.cues}
    assert set(counts) == expected and len(set(counts.values())) == 1
    assert len({row.english for row in splits["retrieved"]}) == len(splits["retrieved"])


def test_no_test_sentence_and_no_picture_is_in_another_split(splits):
    sentences = {name: {row.english for row in rows} for name, rows in splits.items()}
    assert not (sentences["paired"] | sentences["retrieved"]) & sentences["train"]
    assert not sentences["paired"] & sentences["valid"]
    states = {name: {row.state for row in rows} for name, rows in splits.items()}
    assert sum(map(len, states.values())) == len(set().union(*states.values()))


def test_collection_shows_each_sense_at_least_twenty_times_with_all_its_cues(splits):
    counts = Counter(row.noun.german for row in splits["captions.train"])
    assert min(counts[noun.german] for pair in language.AMBIGUOUS for noun in pair) >= 20
    shown = {(row.noun.german, row.scene) for row in splits["captions.train"]}
    assert all((n.german, cue) in shown for pair in language.AMBIGUOUS for n in pair for cue in n.cues)


def test_mean_colour_does_not_tell_the_senses(splits):
    """The nearest training picture by mean colour guesses: 336 answers, 50 % +- 3 % expected."""
    rows: dict[str, list[world.Row]] = {}
    for row in splits["train"]:
        if row.noun.english in AMBIGUOUS_NAMES and len(found := rows.setdefault(row.noun.english, [])) < 40:
            found.append(row)
    colours = {name: np.stack([draw(row).mean(axis=(0, 1)) for row in found]) for name, found in rows.items()}
    hits = 0
    for row in splits["paired"]:
        gaps = np.square(colours[row.noun.english] - draw(row).mean(axis=(0, 1))).sum(axis=1)
        hits += rows[row.noun.english][int(gaps.argmin())].noun.german == row.noun.german
    assert 0.4 <= hits / len(splits["paired"]) <= 0.6


def test_two_senses_drawn_from_one_state_differ_in_nothing_but_the_thing():
    look = drawing.Look("red", "small", "right")
    animal, club = (
        np.asarray(drawing.draw_picture(name, "table", look, np.random.default_rng(3))).astype(int)
        for name in ("bat_animal", "bat_club")
    )
    differ = (animal != club).any(axis=2)
    assert not differ[:, :30].any() and 0.01 < differ.mean() < 0.25  # a small thing, right of the middle


def test_every_thing_and_scene_leaves_its_mark():
    look = drawing.Look("blue", "big", "middle")

    def drawn(thing: str, scene: str) -> bytes:
        return drawing.draw_picture(thing, scene, look, np.random.default_rng(5)).tobytes()

    pictures = {drawn(thing, "plain") for thing in drawing.THINGS} | {drawn("cup", scene) for scene in drawing.SCENES}
    assert len(pictures) == len(drawing.THINGS) + len(drawing.SCENES) - 1  # the cup on plain ground is in both


def test_the_same_seed_writes_the_same_bytes_and_another_seed_others(small_world, tmp_path):
    for name in ("a", "b"):
        world.write_world(tmp_path / name, 1)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert len(files) > 500
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)
    rows = [[row.english for row in world.build_splits(world.World(seed))["train"]] for seed in (1, 2)]
    assert rows[0] != rows[1]


def test_files_line_up_and_keys_name_the_pictures(small_world, tmp_path):
    counts = world.write_world(tmp_path, 1)
    lines = {p.relative_to(tmp_path).as_posix(): p.read_text("utf-8").splitlines() for p in tmp_path.rglob("*.*")
             if p.suffix != ".png"}  # fmt: skip
    pairs = [key for name in ("train", "valid", "paired") for key in lines[f"text/{name}.keys"]]
    captioned = {line.split("\t")[0] for name in ("train", "valid") for line in lines[f"captions.{name}.tsv"]}
    assert sorted(pairs) == sorted(p.name for p in (tmp_path / "images/pairs").iterdir())
    assert captioned == {p.name for p in (tmp_path / "images/collection").iterdir()}
    assert not captioned & set(pairs)
    assert "text/retrieved.keys" not in lines
    for name in ("train", "valid", "paired", "retrieved"):
        assert len(lines[f"text/{name}.en"]) == len(lines[f"text/{name}.de"]) == counts[name]
    for name in ("paired", "retrieved"):
        for line in lines[f"text/{name}.answers.tsv"]:
            number, noun, right, other = line.split("\t")
            german = lines[f"text/{name}.de"][int(number) - 1].split()
            assert noun in lines[f"text/{name}.en"][int(number) - 1].split()
            assert right in german and other not in german


def test_the_other_sense_of_a_sentence_is_its_wrong_translation(splits):
    rows = splits["paired"]
    english, german = [row.english for row in rows], [row.german for row in rows]
    others = other_senses(english, german)
    meant = dict(zip(zip(english, german), others))
    assert all(other != own and meant[source, other] == own for source, own, other in zip(english, german, others))
    with pytest.raises(SystemExit, match="there once with either sense, but 'a' isn't"):
        other_senses(["a"], ["b"])


def test_only_a_folder_of_its_own_is_made_anew_and_by_one_run_at_a_time(tmp_path):
    """All in it is deleted."""
    steps = Path(world.__file__).with_name("steps.sh")

    def source(out: Path) -> subprocess.CompletedProcess[str]:
        script = f"set -euo pipefail; out={out}; source {steps}; ls {out}"
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True)

    assert source(tmp_path / "out").stdout.split() == ["logs", "translations"]
    (tmp_path / "out/older").write_text("of a run before")
    assert source(tmp_path / "out").stdout.split() == ["logs", "translations"]
    (tmp_path / "photos/logs").mkdir(parents=True)
    (tmp_path / "photos/mine.jpg").write_text("mine")
    done = source(tmp_path / "photos")
    assert done.returncode == 2 and "but " in done.stderr and "photos holds other things" in done.stderr
    assert (tmp_path / "photos/mine.jpg").exists()
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed/.quickstart").touch()  # before it made anything
    assert source(tmp_path / "killed").returncode == 0
    (tmp_path / "out/world").write_text("of the run that goes on")
    other = os.open(tmp_path / "out/.quickstart", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    done = source(tmp_path / "out")
    assert done.returncode == 2 and "out is in use by another run" in done.stderr
    os.close(other)
    assert (tmp_path / "out/world").exists()
