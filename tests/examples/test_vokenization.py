"""The recipe of vokenization: its texts keep apart what they must, tasks are learned and measured, all steps run."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from commands import for_scripts
from conftest import REPOSITORY, shared_data, write_store
from small_matcher import make_bert, make_token_matcher

from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.retriever import Retriever

sys.path.insert(0, str(REPOSITORY / "examples" / "vokenization"))
import finetune
import floors
import table
import texts

FOLDER = REPOSITORY / "examples" / "vokenization"
TASKS = {"sst2", "qnli", "qqp", "mnli", "rte", "mrpc", "stsb", "codah", "xquad"}


# What is measured


def test_paraphrases_score_the_mean_of_accuracy_and_f1() -> None:
    said, answers = np.array([1, 1, 0, 0, 1]), np.array([1, 0, 1, 0, 1])
    # 3 of 5 are right; 2 of 3 that were said, 2 of 3 that are: F1 = 4 / 6.
    found = finetune.label_scores("qqp", said, answers)
    assert found == {"accuracy": 0.6, "f1": pytest.approx(2 / 3), "score": pytest.approx((0.6 + 2 / 3) / 2)}
    assert finetune.label_scores("sst2", said, answers) == {"accuracy": 0.6, "score": 0.6}


def test_grades_score_the_mean_of_two_correlations() -> None:
    said, answers = np.array([1.0, 2.0, 9.0]), np.array([1.0, 2.0, 3.0])
    # Centred: -3, -2, 5 and -1, 0, 1: 8 / (sqrt(38) sqrt(2)). In the same order: Spearman's is 1.
    found = finetune.grade_scores(said, answers)
    assert found["pearson"] == pytest.approx(8 / math.sqrt(76)) and found["spearman"] == pytest.approx(1)
    assert found["score"] == pytest.approx((8 / math.sqrt(76) + 1) / 2)


@pytest.mark.parametrize(
    ("said", "answer", "exact", "overlap"),
    [
        ("the Denver Broncos!", "Denver Broncos", 1, 1),
        ("Denver", "Denver Broncos", 0, 2 / 3),
        ("Boston", "Denver", 0, 0),
        ("", "Denver", 0, 0),
        ("a b b", "b b c", 0, 4 / 5),  # the article doesn't count: 2 common of 2 and 3
    ],
)
def test_answers_are_scored_as_squad_does(said, answer, exact, overlap) -> None:
    assert finetune.answer_scores(said, answer) == (exact, pytest.approx(overlap))


def test_best_span_agrees_with_its_naive_twin() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        start, end = rng.normal(size=(2, 9))
        shown = {place: (place, place + 1) for place in range(3, 8)}
        naive = max((start[a] + end[b], a, b) for a in shown for b in shown if a <= b < a + 3)
        assert finetune.best_spans(start, end, shown, longest=3) == [pytest.approx(naive)]
    assert finetune.best_spans(start, end, {}) == []


def test_settings_are_the_papers():
    """VOK §4.2: learning rate and batch of sentences, choices and questions; all warm up as sentences do."""
    assert [each[:2] for each in finetune.SETTINGS.values()] == [(1e-4, 32), (2e-5, 16), (5e-5, 32)]
    assert list(finetune.SETTINGS) == [finetune.SENTENCES, finetune.CHOICES, finetune.QUESTIONS]
    assert {each[2] for each in finetune.SETTINGS.values()} == {0.1}
    assert finetune.KINDS == {"codah": finetune.CHOICES, "xquad": finetune.QUESTIONS}


# Fine-tuning

ROWS = {
    "sst2": [{"text": letter + n * " x", "label": str(int(letter in "ab"))} for n, letter in enumerate("abcd")],
    "stsb": [{"text": letter, "pair": "x", "label": str(place)} for place, letter in enumerate("abcd")],
    "codah": [{"text": "x", "endings": ["b", "c", "d", "a"][-n:] + ["b", "c", "d", "a"][:-n], "label": (n + 3) % 4}
              for n in range(4)],
    "xquad": [{"id": "1", "context": "c d a e", "question": "x", "answers": [(4, "a")]},
              {"id": "2", "context": "a c d e", "question": "x", "answers": [(0, "a"), (0, "a c")]}],
}  # fmt: skip


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return make_bert(tmp_path_factory.mktemp("finetuning") / "bert", positions=24)


def tuned(folder, bert, task, *more, epochs=60):
    data = folder / task
    data.mkdir()
    for part in ("train", "dev"):
        lines = [json.dumps(row) + "\n" for row in ROWS[task] * (8 if part == "train" else 1)]
        (data / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")
    out = folder / f"{task}.json"
    words = ["--model", bert, "--task", task, "--data", data, "--epochs", epochs, *more, "--out", out]
    done = pytest.MonkeyPatch()
    with done.context() as patch:
        patch.setattr(sys, "argv", ["finetune.py", *map(str, words)])
        # So small a model needs larger steps.
        settings = {kind: (0.02, batch, warmup) for kind, (_, batch, warmup) in finetune.SETTINGS.items()}
        patch.setattr(finetune, "SETTINGS", settings)
        assert finetune.main() == 0
    return json.loads(out.read_text())


@pytest.mark.parametrize("task", ROWS)
def test_what_can_be_told_is_learned(tmp_path, bert, task) -> None:
    found = tuned(tmp_path, bert, task, "--seed", 3)
    assert found["score"] > 0.8 and (found["task"], found["seed"], found["rows"]) == (task, 3, len(ROWS[task]))


def test_a_question_whose_context_has_no_span_is_answered_by_nothing(tmp_path, bert, monkeypatch) -> None:
    said = []
    monkeypatch.setattr(finetune, "best_spans", lambda *_: [])
    monkeypatch.setattr(finetune, "answer_scores", lambda text, _: said.append(text) or (0.0, 0.0))
    assert tuned(tmp_path, bert, "xquad", epochs=0.1)["score"] == 0 and set(said) == {""}


def test_noise_is_of_the_size_of_the_difference_between_what_both_have_learned(tmp_path, bert) -> None:
    from transformers import AutoModel

    other, before = AutoModel.from_pretrained(bert, add_pooling_layer=False), AutoModel.from_pretrained(bert)
    with torch.no_grad():
        for weight in other.parameters():
            weight += 0.1 * torch.where(torch.rand(weight.shape) < 0.5, 1.0, -1.0)
    other.save_pretrained(tmp_path / "other")  # without a pooler: one that is loaded has random numbers there
    args = type("Arguments", (), {"model": bert, "random": False, "noise_like": str(tmp_path / "other"), "seed": 1})
    noisy, said = finetune.begin(args, finetune.AutoModelForSequenceClassification, num_labels=2)
    assert said["noise"] == pytest.approx(0.1, rel=1e-4)
    known = dict(before.named_parameters())
    change = torch.cat(
        [
            (weight - known[name]).detach().flatten()
            for name, weight in noisy.base_model.named_parameters()
            if not name.startswith("pooler.")
        ]
    )
    assert change.std().item() == pytest.approx(0.1, rel=0.05) and abs(change.mean().item()) < 0.01


def test_every_row_begins_with_a_new_pooler(tmp_path, bert) -> None:
    from transformers import AutoModel

    known = AutoModel.from_pretrained(bert)
    with torch.no_grad():
        known.pooler.dense.weight += 1
    known.save_pretrained(tmp_path / "known")
    args = type("Arguments", (), {"model": str(tmp_path / "known"), "random": False, "noise_like": None, "seed": 1})
    poolers = []
    for _ in range(2):
        finetune.set_seed(1)
        model, _ = finetune.begin(args, finetune.AutoModelForSequenceClassification, num_labels=2)
        poolers.append(model.base_model.pooler.dense.weight)
        name = "embeddings.word_embeddings.weight"
        assert torch.equal(model.base_model.get_parameter(name), known.get_parameter(name))
    assert torch.equal(*poolers) and poolers[0].abs().mean() < 0.1


def test_every_model_is_fine_tuned_with_dropout_whatever_it_was_trained_with(tmp_path) -> None:
    folder = make_bert(tmp_path / "bert", positions=24)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **dict.fromkeys(finetune.DROPOUT, 0.0)}))
    for random in (False, True):
        args = type("Arguments", (), {"model": str(folder), "random": random, "noise_like": None, "seed": 1})
        model, _ = finetune.begin(args, finetune.AutoModelForSequenceClassification, num_labels=2)
        assert {each.p for each in model.modules() if isinstance(each, torch.nn.Dropout)} == {0.1}


def test_random_weights_are_not_those_of_the_folder(bert) -> None:
    args = type("Arguments", (), {"model": bert, "random": True, "noise_like": None, "seed": 1})
    model, _ = finetune.begin(args, finetune.AutoModelForSequenceClassification, num_labels=2)
    args.random = False
    loaded, _ = finetune.begin(args, finetune.AutoModelForSequenceClassification, num_labels=2)
    assert model.config.hidden_size == loaded.config.hidden_size
    name = "embeddings.word_embeddings.weight"
    assert not torch.equal(model.base_model.get_parameter(name), loaded.base_model.get_parameter(name))


# Floors and tables


def test_token_recall_counts_every_token_but_special_ones(tmp_path) -> None:
    folder = make_token_matcher(tmp_path / "matcher").folder
    store = FeatureStore(write_store(tmp_path / "store", np.random.default_rng(0).normal(size=(24, 1, 6))))
    keys = list(store.keys())
    captions = [(key, " ".join("abcdefgh"[: 1 + number % 7])) for number, key in enumerate(keys)] + [(keys[3], "x y")]
    retriever = Retriever.load(folder)
    images = retriever.encode_images(torch.from_numpy(store.features[:].astype(np.float32)), torch.zeros(24, 1) > 0)
    right = total = 0
    for key, caption in captions:
        numbers = retriever.tokenize([caption])[0][0]
        vectors = retriever.embed_tokens(torch.tensor([numbers]), torch.zeros(1, len(numbers)) > 0)[0, 1:-1]
        for vector in vectors:
            nearest = (images @ vector).argsort(descending=True)[: floors.AT].tolist()
            right, total = right + (keys.index(key) in nearest), total + 1
    found = floors.token_recall(retriever, store, captions)
    assert found["tokens"] == total == sum(len(caption.split()) for _, caption in captions)
    assert found["recall"] == pytest.approx(right / total) and found["photos"] == 24
    assert found["low"] < found["recall"] < found["high"]


def validation(ppl, masked, visible):
    accuracies = f"voken_accuracy 0.9 | voken_accuracy_masked {masked} | voken_accuracy_visible {visible}"
    return f"x | valid on 'valid' subset | loss 1 | {accuracies} | ppl {ppl} | wps 9\n"


def test_table_reads_the_last_validation() -> None:
    found = table.last_validation(validation(2, 0.2, 0.21) + "train | ppl 9\n" + validation(3, 0.3, 0.31) + "| ppl 8\n")
    assert found == {"voken_accuracy_masked": 0.3, "voken_accuracy_visible": 0.31, "ppl": 3}
    assert table.last_validation("x | valid on 'valid' subset | loss 1 | ppl 7 | wps 9\n") == {"ppl": 7}
    assert table.last_validation("train | ppl 9\n") == {}


def test_table_compares_each_seed_with_the_floors(tmp_path) -> None:
    assert table.floor_table(tmp_path, {}) == []
    recall = {"matcher": {"low": 0.03, "high": 0.05, "photos": 9}, "control": {"recall": 0.01}}
    floors = {"recall": recall, "recall_times": 3, "commonest_voken": 0.2, "commonest_voken_of_piece": 0.5}
    (tmp_path / "floors.json").write_text(json.dumps(floors))
    logs = {1: validation(2, 0.21, 0.5), 2: validation(3, 0.19, 0.51)}
    for seed, log in logs.items():
        (tmp_path / f"logs/seed{seed}").mkdir(parents=True)
        (tmp_path / f"logs/seed{seed}/train-voken.log").write_text(log)
    [said] = table.floor_table(tmp_path, table.read_validations(tmp_path, "voken", 3))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines()[2:]]
    assert [row[1:] for row in rows] == [
        ["3.00 %", "3 × 1.00 % of shuffled captions", "holds"],
        ["21.00 %", "20.00 %", "holds"],
        ["50.00 %", "50.00 %", "DOES NOT HOLD"],  # above, not as high
        ["19.00 %", "20.00 %", "DOES NOT HOLD"],
        ["51.00 %", "50.00 %", "holds"],
    ]
    assert "among 9 photos: lower end of [3.00 %, 5.00 %]" in rows[0][0] and "masked pieces, seed 2" in rows[3][0]
    (tmp_path / "floors.json").write_text(json.dumps({**floors, "unigram_perplexity": 12.6}))
    assert table.floor_table(tmp_path, {})[1] == "perplexity of who knows alone how frequent pieces are: 13"


def test_unigrams_know_how_frequent_pieces_are() -> None:
    class Text:
        def __init__(self, *lines: str) -> None:
            self.token_lines = lambda: iter(lines)

    # Of a, b and c, each once more: a 3, b 2, c 1 of 6. Asked: a, a, c, c.
    found = floors.unigram_perplexity(Text("a a", "b"), Text("a c", "", "c a"))
    assert found == pytest.approx((3 / 6 * 3 / 6 * 1 / 6 * 1 / 6) ** (-1 / 4))


def test_table_has_the_interval_of_a_paired_test_over_seeds() -> None:
    scores = {
        "voken": {"sst2": {1: 80.0, 2: 84.0, 3: 82.0}, "qqp": {1: 60.0, 2: 60.0, 3: 60.0}},
        "mlm-more": {"sst2": {1: 78.0, 2: 78.0, 3: 78.0}, "qqp": {1: 60.0, 2: 60.0, 3: 60.0}},
        "random": {"sst2": {1: 78.0, 2: 78.0}, "qqp": {1: 60.0, 2: 60.0}},
    }
    # Gains 1, 3, 2: mean 2, deviation 1, t of two degrees of freedom 4.303: 4.303 / sqrt 3 = 2.48.
    [said] = table.contrast_table(scores, ["sst2", "qqp"], 3)
    assert said.splitlines()[2:] == ["| voken minus mlm-more | +2.0 [-0.5, +4.5] |"]
    assert table.contrast_table(scores, ["sst2", "qqp"], 1) == table.contrast_table(scores, [], 3) == []


def test_table_has_means_spreads_and_gains(tmp_path, monkeypatch, capsys) -> None:
    scores = {
        ("voken", 1): (0.8, 0.6),
        ("voken", 2): (0.9, 0.5),
        ("mlm-more", 1): (0.7, 0.6),
        ("mlm-more", 2): (0.7, 0.7),
        ("random", 2): (0.5, 0.5),
    }
    for (row, seed), (sst2, qqp) in scores.items():
        for task, score in (("sst2", sst2), ("qqp", qqp)):
            path = tmp_path / f"seed{seed}/scores/{row}/{task}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"score": score}))
    for seed, ppl in ((1, 30), (2, 32)):
        (tmp_path / f"logs/seed{seed}").mkdir(parents=True)
        (tmp_path / f"logs/seed{seed}/train-voken.log").write_text(validation(ppl, 0.2, 0.3))
    (tmp_path / "stats").mkdir()
    ratios = {"corpora": [{"name": "sst2", "grounding_ratio": 0.1}, {"name": "qqp", "grounding_ratio": 0.2}]}
    (tmp_path / "stats/statistics.json").write_text(json.dumps(ratios))
    monkeypatch.setattr(sys, "argv", ["table.py", "--out", str(tmp_path), "--seeds", "2"])
    assert table.main() == 0
    said = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines() if line]
    assert said[0] == ["", "qqp", "sst2", "mean", "perplexity"]
    assert ["voken", "55.0 ± 7.1", "85.0 ± 7.1", "70.0 ± 0.0", "31.0 ± 1.4"] in said  # each seed's mean: 70, 70
    assert ["mlm-more", "65.0 ± 7.1", "70.0 ± 0.0", "67.5 ± 3.5", ""] in said
    assert ["random", "50.0", "50.0", "", ""] in said  # one seed of two
    assert said[-2:] == [["sst2", "10.0 %", "+15.0", "+10.0, +20.0"], ["qqp", "20.0 %", "-10.0", "+0.0, -20.0"]]
    # A row that has some tasks alone: the mean is over those that all have.
    (tmp_path / "seed2/scores/random/qqp.json").unlink()
    assert table.main() == 0
    said = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines() if line]
    assert said[0] == ["", "qqp", "sst2", "mean of sst2", "perplexity"]
    assert ["voken", "55.0 ± 7.1", "85.0 ± 7.1", "85.0 ± 7.1", "31.0 ± 1.4"] in said
    assert ["random", "", "50.0", "", ""] in said
    # Seeds are compared with their own, and a task that one of the two lacks isn't compared.
    (tmp_path / "seed1/scores/mlm-more/sst2.json").unlink()
    for seed in (1, 2):
        (tmp_path / f"seed{seed}/scores/voken/qqp.json").unlink()
    assert table.main() == 0
    said = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines() if line]
    assert said[-1] == ["sst2", "10.0 %", "+20.0", "+20.0"] and said[-2][0].startswith("-")


# Texts


def test_first_words_gives_whole_lines() -> None:
    assert list(texts.first_words(["a b", "c d e", "f"], 3)) == ["a b", "c d e"]


def test_a_row_of_another_width_is_refused(tmp_path) -> None:
    (tmp_path / "table.tsv").write_text("label\ttext\n0\ta\n1\n")
    with pytest.raises(InputError, match=r"table\.tsv:3 should have 2 columns, but has 1"):
        list(texts.read_rows(tmp_path / "table.tsv", 2))


@pytest.fixture(scope="module")
def slice_of_texts(tmp_path_factory):
    if not (shared_data() / "flickr8k").is_dir():
        pytest.skip("the shared real data isn't here (set VISUAL_GROUNDING_DATA)")
    out = tmp_path_factory.mktemp("texts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["texts.py", "--data", str(shared_data()), "--out", str(out), "--limit", "200"])
        assert texts.main() == 0
    return out


@pytest.mark.data
def test_real_text_has_no_sentence_that_is_measured_on(slice_of_texts) -> None:
    lines = {part: (slice_of_texts / f"text/{part}.txt").read_text().splitlines() for part in ("train", "valid")}
    assert len(lines["train"]) > 5000 and len(lines["valid"]) > 100 and not set(lines["train"]) & set(lines["valid"])
    learned = {texts.letters(line) for line in lines["train"] + lines["valid"]}
    found = set()
    for task in TASKS:
        rows = [json.loads(line) for line in (slice_of_texts / f"tasks/{task}/dev.jsonl").read_text().splitlines()]
        assert rows
        measured = {texts.letters(text) for row in rows for text in texts.texts_of(row)}
        assert not measured & learned, task
        found |= measured
    assert len(found) > 1000
    unseen = (slice_of_texts / "captions/valid.tsv").read_text().splitlines()
    assert unseen and not {texts.letters(line.split("\t")[1]) for line in unseen} & learned


@pytest.mark.data
def test_text_kept_out_is_runs_of_lines_and_leaves_the_small_tasks_to_be_learned_alone(slice_of_texts) -> None:
    valid = (slice_of_texts / "text/valid.txt").read_text().splitlines()
    captions = dict(
        reversed(line.split("\t")) for line in (slice_of_texts / "captions/train.tsv").read_text().splitlines()
    )
    told = [captions[line] for line in valid if line in captions]  # the photo of each caption
    assert len(told) >= 15 and len(set(told)) <= len(told) / 4 + 2  # five to a photo
    lines = {*valid, *(slice_of_texts / "text/train.txt").read_text().splitlines()}
    for task, learned in (("rte", False), ("mrpc", False), ("stsb", False), ("qqp", True)):
        sentences = (slice_of_texts / f"tasks/{task}/sentences.txt").read_text().splitlines()
        share = sum(sentence in lines for sentence in sentences) / len(sentences)
        assert share > 0.9 if learned else share < 0.1, (task, share)


@pytest.mark.data
def test_no_shuffled_caption_keeps_its_photo(slice_of_texts) -> None:
    for part in ("train", "valid"):
        pairs = [
            [line.split("\t") for line in (slice_of_texts / folder / f"{part}.tsv").read_text().splitlines()]
            for folder in ("captions", "shuffled")
        ]
        assert all(own[1] == other[1] and own[0] != other[0] for own, other in zip(*pairs, strict=True))
        assert {key for key, _ in pairs[0]} == {key for key, _ in pairs[1]}


# The recipe


def script_environment():
    unset = {"DATA", "OUT", "SEEDS", "FULL", "TASKS", "VISUAL_GROUNDING_DATA"}
    return {key: value for key, value in os.environ.items() if key not in unset}


def run_script(name, **environment):
    values = {key: str(value) for key, value in environment.items()}
    return subprocess.run(
        ["bash", FOLDER / name], env={**script_environment(), **values}, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"DATA": "/nowhere"}, "DATA should be a folder with flickr8k/ and downstream/ in it, but is '/nowhere'"),
        ({"SIZE": "huge"}, "SIZE should be small or paper, but is 'huge'"),
    ],
)
def test_scripts_say_what_is_missing(variables, message, tmp_path) -> None:
    done = run_script("prepare.sh", OUT=tmp_path, **variables)
    assert done.returncode == 2 and message in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("choices", "tasks"),
    [
        ({}, ("mnli qqp sst2", "mnli qqp sst2")),
        ({"FULL": "yes"}, ("sst2 qnli qqp mnli codah xquad rte mrpc stsb", "sst2 qnli qqp mnli")),
        ({"FULL": "yes", "TASKS": "rte"}, ("rte", "rte")),
    ],
)
def test_full_has_all_tasks_for_vokens_and_the_four_of_the_paper_for_others(choices, tasks) -> None:
    said = f'source {FOLDER}/settings.sh && for row in voken random; do tasks_of "$row"; done'
    done = subprocess.run(["bash", "-c", said], env={**script_environment(), **choices}, capture_output=True, text=True)
    assert tuple(done.stdout.splitlines()) == tasks, done.stderr


@pytest.mark.data
@pytest.mark.slow
def test_recipe_runs_from_raw_files_to_scores_on_a_slice(real_data, tmp_path) -> None:
    once = dict.fromkeys(("MATCH_EPOCHS", "TASK_EPOCHS", "OMP_NUM_THREADS"), 1)
    choices = {"LIMIT": 60, "UPDATES": 10, "TASKS": "qqp", **once}
    for part in ("prepare", "train", "evaluate"):
        done = run_script(f"{part}.sh", DATA=real_data, OUT=tmp_path, **choices, **for_scripts())
        assert done.returncode == 0, f"{part}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    found = json.loads((tmp_path / "table.json").read_text())["scores"]
    rows = ("mlm-more", "voken", "shuffled")
    expected = {(row, "qqp") for row in rows}
    assert {(row, task) for row in found for task in found[row]} == expected
    assert done.stdout.count("HOLD") + done.stdout.count("| holds") == 3  # recall; vokens of masked and of seen pieces
    validations = json.loads((tmp_path / "table.json").read_text())["validations"]
    assert all(list(validations[row]) == ["1"] for row in rows)
    assert len(list((tmp_path / "pictures").glob("line-*.png"))) == 2
    # Other rows in the same folder; what is done stays.
    done_before = {path: path.stat().st_mtime_ns for path in (tmp_path / "done").rglob("*") if path.is_file()}
    for part in ("prepare", "train", "evaluate"):
        done = run_script(f"{part}.sh", DATA=real_data, OUT=tmp_path, **choices, ROWS="none random", **for_scripts())
        assert done.returncode == 0, f"{part}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    found = json.loads((tmp_path / "table.json").read_text())["scores"]
    assert {(row, task) for row in found for task in found[row]} == expected | {("none", "qqp"), ("random", "qqp")}
    assert {path: path.stat().st_mtime_ns for path in done_before} == done_before
