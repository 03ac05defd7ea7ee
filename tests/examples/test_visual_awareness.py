"""The recipe on real data: masks and splits are what they should be, overlap is counted, and all its steps run."""

import json
import os
import random
import re
import subprocess
import sys

import pytest
from commands import for_scripts
from conftest import REPOSITORY, shared_data

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.storage.lines import read_lines

sys.path.insert(0, str(REPOSITORY / "examples" / "visual_awareness"))
import data
import groups
import karpathy
import results

FOLDER = REPOSITORY / "examples" / "visual_awareness"

ROWS = {
    "noisy/valid": 1109,
    "noisy/test": 467,
    "plain/train": 27206,
    "plain/valid": 1014,
    "plain/photos": 1109,
    "plain/test.photos": 467,
    "plain/test.2016": 757,
    "plain/test.2017": 1000,
    "plain/test.coco": 461,
    "masked/train": 5199,
    "masked/valid": 1109,
    "masked/test": 467,
}


def run_script(name: str, **environment: object) -> subprocess.CompletedProcess[str]:
    values = {key: str(value) for key, value in environment.items()}
    unset = {"DATA", "OUT", "TEXT", "RETRIEVER", "COCO", "KARPATHY", "FLICKR30K", "SEEDS", "VISUAL_GROUNDING_DATA"}
    kept = {key: value for key, value in os.environ.items() if key not in unset}
    return subprocess.run(["bash", FOLDER / name], env={**kept, **values}, capture_output=True, text=True)


def row(source: str, photo: str = "") -> data.Row:
    return data.Row("train", 0, photo, source, "ein Satz")


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    """The real sentences, and the folder that they were written to."""
    if not (shared_data() / "flickr8k").is_dir():
        pytest.skip("the shared real data isn't here (set VISUAL_GROUNDING_DATA)")
    out = tmp_path_factory.mktemp("sentences")
    return data.write_sentences(shared_data(), out, "de", None), out


def test_mask_nouns_replaces_the_words_at_the_positions():
    sentence = "a dog and a cat ."
    assert data.mask_nouns(sentence, sentence.split(), [1, 4], "[MASK]") == "a [MASK] and a [MASK] ."


def test_mask_nouns_refuses_another_tokenisation():
    with pytest.raises(InputError, match=r"for the 3 words 'a dog \.', but the sentence has 2: 'a dog\.'"):
        data.mask_nouns("a dog.", ["a", "dog", "."], [1], "[MASK]")


def test_read_noun_positions_joins_singular_and_plural(tmp_path):
    path = tmp_path / "train.masks.tsv"
    lines = [
        "line image tokens noun nouns people color",
        "0 x.jpg a_dog_and_two_cats 1 4 - -",
        "1 y.jpg it_runs - - - -",
    ]
    path.write_text("".join(line.replace(" ", "\t").replace("_", " ") + "\n" for line in lines))
    assert data.read_noun_positions(path) == [(["a", "dog", "and", "two", "cats"], [1, 4]), (["it", "runs"], [])]


def test_read_rows_refuses_files_of_different_length(tmp_path):
    (tmp_path / "val.index.tsv").write_text("line\tmulti30k_split\tmulti30k_line\tflickr8k_image\n0\tval\t0\t-\n")
    (tmp_path / "val.en").write_text("a\nb\n")
    (tmp_path / "val.de").write_text("a\n")
    with pytest.raises(InputError, match=r"index\.tsv has 1 rows, but \.en has 2 lines and \.de 1"):
        data.read_rows(tmp_path / "val", "de")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("A dog &apos;s ball .", "a dog's ball", True),
        ("two , three", "Two, three.", True),
        ("a dog runs", "a dog ran", False),
    ],
)
def test_normalise_ignores_tokenisation_case_and_punctuation(one, other, equal):
    assert (data.normalise(one) == data.normalise(other)) is equal


def test_noise_takes_a_fifth_of_the_words_and_leaves_one():
    chance = random.Random(0)
    sentence = " ".join(map(str, range(10_000)))
    kept = list(map(int, data.lose_words(sentence, chance).split()))
    assert 7_800 < len(kept) < 8_200 and kept == sorted(kept)
    assert {data.lose_words("word", chance) for _ in range(50)} == {"word"}


def test_groups_are_short_rows_and_those_with_a_rare_word():
    training = ["a dog runs ."] * 6 + ["a cat ."] * 5
    sources = ["a dog .", "a a a a a dog runs runs", "a a a a a dog runs runs .", "a cat runs ."]
    assert groups.groups_of(sources, training) == {"all": [0, 1, 2, 3], "short": [0, 1, 3], "rare": [3]}


def test_groups_take_the_same_rows_of_every_file(tmp_path, monkeypatch):
    for number, (subset, name) in enumerate(groups.SETS.items()):
        for ending in ("en", "de"):
            long = " w" * 8 if number % 2 else ""
            data.write_lines(tmp_path / f"plain/{name}.{ending}", [f"{ending} {number}{long}", f"{ending}{long} x"])
        for system in groups.SYSTEMS:
            lines = [f"H-{row}\t-1\t{system} {number} {row}" for row in (1, 0)]
            data.write_lines(tmp_path / f"translations/plain.{subset}.{system}.txt", lines)
    data.write_lines(tmp_path / "plain/train.en", ["en x 0 1 2 3 w"] * 6)
    monkeypatch.setattr(sys, "argv", ["groups.py", "--run", str(tmp_path)])
    groups.main()
    assert read_lines(tmp_path / "groups/short.de") == ["de 0", "de x", "de 2", "de x", "de 4", "de x"]
    assert read_lines(tmp_path / "translations/groups.short.retrieved.txt")[:3] == [
        "retrieved 0 0", "retrieved 0 1", "retrieved 2 0"
    ]  # fmt: skip
    assert read_lines(tmp_path / "groups/rare.en") == ["en 4"]  # training hasn't got 4
    assert len(read_lines(tmp_path / "translations/groups.all.shuffled.txt")) == 10


def test_count_overlap_counts_photos_captions_and_training_sentences():
    splits = {
        "train": [row("a dog .", "12_ab.jpg"), row("a cat .")],
        # its own photo can be found, by key; a caption; a training sentence; none of them
        "test": [row("A bird", "12_ab.jpg"), row("the dog sleeps ."), row("a cat."), row("a fish")],
    }
    counts = data.count_overlap({"12_ab.jpg"}, ["The dog sleeps"], splits, {})
    assert counts["train"] == {
        "rows": 2,
        "own_photo_in_collection": 1,
        "sentence_is_a_caption_of_the_collection": 0,
        "sentence_is_a_training_sentence": 2,
    }
    assert list(counts["test"].values()) == [4, 1, 1, 1]
    named = data.count_overlap({"12_ab.jpg"}, [], {"train": [row("a"), row("b")]}, {"train": ["12.jpg", "13.jpg"]})
    assert named["train"]["own_photo_in_collection"] == 1  # by the number of the photo, where no key is known


def test_karpathy_split_joins_restval_to_training_and_names_photos_by_path():
    images = [
        {"filepath": "val2014", "filename": "a.jpg", "split": "restval", "sentences": [{"raw": " A  dog\nruns. "}]},
        {"filename": "b.jpg", "split": "val", "sentences": [{"raw": "A cat."}, {"raw": " "}]},
    ]
    assert karpathy.read_split(images) == {
        "train": [("val2014/a.jpg", "A dog runs.")],
        "valid": [("b.jpg", "A cat.")],
        "test": [],
    }


def test_results_reads_recall_in_percent_and_names_a_log_without(tmp_path):
    scores = {f"test_{name}": (number + 1) / 10 for number, name in enumerate(results.RECALLS)}
    log = tmp_path / "recall-bag-test.log"
    log.write_text(f"2026 | INFO | test | {json.dumps(scores)}\nbye\n")
    assert list(results.read_recall(log, "test").values()) == [10, 20, 30, 40, 50, 60]
    with pytest.raises(SystemExit, match="should hold the scores of valid"):
        results.read_recall(log, "valid")


@pytest.mark.parametrize(
    ("script", "variables", "message"),
    [
        ("prepare.sh", {"DATA": "/nowhere"}, "DATA should be a folder with flickr8k/ in it, but is '/nowhere'"),
        ("seeds.sh", {"SEEDS": "five"}, "SEEDS should be a whole number from 1 on, but is 'five'"),
        ("prepare.sh", {"SIZE": "huge"}, "SIZE should be small or paper, but is 'huge'"),
        ("full_coco_retriever.sh", {}, "COCO should name the folder with train2014/ and val2014/, but is ''"),
        ("full_wmt16_enro.sh", {"TEXT": "/nowhere"}, "TEXT should name .* but is '/nowhere'"),
        ("full_wmt14_ende.sh", {"TEXT": "."}, "RETRIEVER should name what full_coco_retriever.sh made"),
        ("full_multi30k_tiny.sh", {"TEXT": ".", "FLICKR30K": "."}, r"should hold train\.en, tokenised"),
    ],
)
def test_scripts_say_what_is_missing(script, variables, message):
    done = run_script(script, **variables)
    assert done.returncode == 2
    assert re.search(message, done.stderr), done.stderr


@pytest.fixture
def seeds(tmp_path):
    """Two finished seeds: what evaluate.sh leaves, of four made-up sentences for every text."""
    references = ["ein Hund läuft im Park .", "eine Katze schläft .", "zwei Kinder spielen Ball .", "ein Mann liest ."]
    (tmp_path / "reference").write_text("".join(line + "\n" for line in references), encoding="utf-8")
    for seed, words in ((1, ("Hund", "Katze")), (2, ("Hund", "Mann"))):
        run = tmp_path / f"seed{seed}"
        (run / "logs").mkdir(parents=True)
        recall = {f"test_{name}": (number + seed) / 10 for number, name in enumerate(results.RECALLS)}
        (run / "logs/recall-bag-test.log").write_text(json.dumps(recall) + "\n")
        (run / "overlap.json").write_text("{}")
        for number, word in enumerate(words):
            lines = [line.replace(word, "Ding").replace("spielen", f"s{seed}{number}") for line in references]
            (run / f"{number}.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        for text in results.TEXTS:
            files = ["--hypothesis", run / "0.txt", "--twin", run / "1.txt", "--reference", tmp_path / "reference"]
            flags = [*files, "--bootstrap-samples", 10, "--out", run / f"scores/{text}.paired.against.text-only"]
            assert main(["evaluate", *map(str, flags)]) == 0
        (run / "results.json").write_text(json.dumps(results.collect(run)))
    return tmp_path


def test_finished_seeds_are_put_into_one_table_and_not_trained_again(seeds):
    done = run_script("seeds.sh", OUT=seeds, SEEDS=2, RETRIEVERS="bag", DATA="/nowhere")
    assert done.returncode == 0, done.stderr
    assert "seed 1 of 2 is finished" in done.stdout and "seed 2 of 2 is finished" in done.stdout
    found = json.loads((seeds / "results.json").read_text())
    assert found["recall"]["bag"]["test"]["text_to_image_r1"] == [10, 20]
    assert "| bag, test | 15.0 ± 7.1 / 25.0 ± 7.1 / 35.0 ± 7.1 |" in done.stdout
    test = found["comparisons"]["masked.valid"]["paired against text-only"]
    single = [json.loads((seeds / f"seed{seed}/results.json").read_text()) for seed in (1, 2)]
    expected = [each["comparisons"]["masked.valid"]["paired against text-only"]["delta"] for each in single]
    assert test["deltas"] == pytest.approx(expected, abs=0.006)
    assert test["low"] <= test["delta"] <= test["high"] and test["p_holm"] == pytest.approx(
        min(1, len(results.TEXTS) * test["p_value"])
    )
    assert f"{test['deltas'][0]:+.2f}, {test['deltas'][1]:+.2f} |" in done.stdout
    assert done.stdout.count("paired against text-only") == len(results.TEXTS)


def test_a_seed_that_is_not_finished_is_run_in_its_own_folder(seeds):
    (seeds / "seed2/results.json").unlink()
    done = run_script("seeds.sh", OUT=seeds, SEEDS=2, RETRIEVERS="bag", DATA="/nowhere")
    assert done.returncode == 2 and "DATA should be a folder with flickr8k/ in it" in done.stderr
    assert "seed 1 of 2 is finished" in done.stdout and done.stdout.rstrip().endswith("seed 2 of 2")
    assert not (seeds / "results.json").exists()


def test_seeds_of_other_choices_are_refused(seeds):
    assert run_script("seeds.sh", OUT=seeds, SEEDS=2, RETRIEVERS="bag").returncode == 0
    done = run_script("seeds.sh", OUT=seeds, SEEDS=2, RETRIEVERS="bag", EPOCHS=3)
    assert done.returncode == 2
    assert re.search(
        r"was begun with 'de given .* 10 20 4000 cpu float32', and these are\s+'de given .* 3 20 4000 cpu float32'",
        done.stderr,
    )


@pytest.mark.data
def test_real_sentences_have_the_published_numbers_of_rows(sentences):
    _, out = sentences
    for name, rows in ROWS.items():
        for ending in ("en", "de", "keys"):
            assert len(read_lines(out / f"{name}.{ending}")) == rows, f"{name}.{ending}"


@pytest.mark.data
def test_real_masks_hide_the_nouns_and_nothing_else(sentences):
    _, out = sentences
    lines = zip(read_lines(out / "plain/test.photos.en"), read_lines(out / "masked/test.en"))
    plain, masked = zip(*lines)
    assert plain[0] == "a boy in his blue swim shorts at the beach ."
    assert masked[0] == "a [MASK] in his blue [MASK] [MASK] at the [MASK] ."
    assert masked[1] == "a shirtless [MASK] and a [MASK] sitting on a [MASK] ."
    for whole, hidden in zip(plain, masked):
        assert all(b in (a, "[MASK]") for a, b in zip(whole.split(), hidden.split(), strict=True))
    assert sum(data.MASK in line for line in masked) >= 460


@pytest.mark.data
def test_real_collection_shares_no_photo_with_validation_or_test(sentences, real_data, tmp_path):
    splits, _ = sentences
    images = data.read_table(real_data / "flickr8k/images.tsv")
    collection = {image["image"] for image in images if image["split"] == "train"}
    captions = [
        caption["caption"]
        for caption in data.read_table(real_data / "flickr8k/captions.tsv")
        if caption["split"] == "train"
    ]
    counts = data.count_overlap(collection, captions, splits, {})
    assert (len(collection), len(captions)) == (5673, 28365)
    assert counts["train"]["own_photo_in_collection"] == 5199
    assert not any(count["own_photo_in_collection"] for split, count in counts.items() if split != "train")
    # Found by counting, and named in the README: people write the same short sentence twice.
    assert counts["test.2017"]["sentence_is_a_caption_of_the_collection"] == 3
    assert counts["test.photos"]["sentence_is_a_training_sentence"] == 2


@pytest.mark.data
@pytest.mark.slow
def test_recipe_runs_from_raw_files_to_scores_on_a_slice(real_data, tmp_path):
    choices = {"LIMIT": 60, "RETRIEVERS": "bag", "RETRIEVER_EPOCHS": 1, "EPOCHS": 1, "MASKED_EPOCHS": 1, "MERGES": 300}
    done = run_script("seeds.sh", DATA=real_data, OUT=tmp_path, OMP_NUM_THREADS=1, **choices, **for_scripts())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads((tmp_path / "results.json").read_text())
    assert set(found["bleu"]) == set(results.TEXTS)
    assert set(found["bleu"]["plain.test"]) == set(results.SYSTEMS)
    assert set(found["bleu"]["masked.valid"]) == {"text-only", "paired", "shuffled", "blank", "retrieved"}
    assert set(found["recall"]["bag"]) == {"test"}
    assert "paired against shuffled" in found["comparisons"]["masked.valid"]
    assert "| bag, test |" in done.stdout
