"""Validation scores over a whole split, whatever the batches, training that goes on, and what the task refuses."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_store
from fairseq import checkpoint_utils, options
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq_cli.train import main as fairseq_train
from omegaconf import OmegaConf

from visual_grounding.criterions.hardest_negative_triplet import HardestNegativeTripletCriterion
from visual_grounding.errors import InputError
from visual_grounding.models.visual_semantic_embedding import (
    VisualSemanticEmbeddingConfig,
    VisualSemanticEmbeddingModel,
)
from visual_grounding.retrieval.recall import recall_summary
from visual_grounding.storage.checkpoints import load_checkpoint
from visual_grounding.tasks.image_text_matching import ImageTextMatchingConfig, ImageTextMatchingTask
from visual_grounding.text.words import Vocabulary, digest_of_symbols


@pytest.fixture
def config(tmp_path):
    write_store(tmp_path / "store", np.random.default_rng(0).normal(size=(9, 1, 4)))
    words = list("abcdefghijklmnopqrstuvwxyz")
    (tmp_path / "dict.txt").write_text("".join(f"{word} 1\n" for word in words))
    rng = np.random.default_rng(1)
    # No two captions have the same words: their order doesn't count in a bag, and rounding would break the tie.
    lines = [f"image{number % 8}.jpg\t{words[number]} {' '.join(rng.choice(words, 2))}\n" for number in range(21)]
    (tmp_path / "valid.tsv").write_text("".join(lines))
    return ImageTextMatchingConfig(data=str(tmp_path), image_features=str(tmp_path / "store"), text_encoder="bag")


@pytest.fixture
def task(config):
    return ImageTextMatchingTask.setup_task(config)


@pytest.fixture
def model(task):
    torch.manual_seed(0)
    flags = VisualSemanticEmbeddingConfig(joint_size=5, text_embed_size=3, text_encoder="bag")
    return VisualSemanticEmbeddingModel.build_model(flags, task)


def validate(task, model, batches: list[list[int]], criterion=None) -> dict[str, float]:
    """As `fairseq-train` does: one `valid_step` and one `reduce_metrics` a batch, inside one aggregator a split."""
    criterion = (criterion or HardestNegativeTripletCriterion(task, 0.2, "both")).eval()
    dataset = task.dataset("valid")
    with metrics.aggregate(new_root=True) as scores:
        for batch in batches:
            sample = dataset.collater([dataset[index] for index in batch])
            _, _, logged = task.valid_step(sample, model, criterion)
            task.reduce_metrics([logged], criterion)
    return scores.get_smoothed_values()


def test_validation_scores_the_whole_split_and_counts_a_repeated_caption_once(task, model):
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    sample = dataset.collater([dataset[index] for index in range(21)])
    with torch.no_grad():
        text, images = model.eval()(**sample["net_input"])
    rows = sample["image_rows"]
    by_row = torch.stack([images[rows.tolist().index(row)] for row in range(8)])
    expected = {name: round(value, 4) for name, value in recall_summary(text, by_row, rows).items()}
    for batches in ([list(range(21))], [[20, 3], list(range(3)), list(range(4, 20)), [20, 3], []]):
        scores = validate(task, model, batches)
        assert {name: scores[name] for name in expected} == expected
        assert all(type(scores[name]) is float for name in expected)


def test_another_criterion_serves_the_task(task, model):
    """Registered from outside; the same scores as the package's own, because embeddings are what is scored."""

    @register_criterion("mean_distance_of_pairs", dataclass=FairseqDataclass)
    class MeanDistanceOfPairs(FairseqCriterion):
        def forward(self, model, sample, reduce=True):
            text, images = model(**sample["net_input"])
            if not self.training:
                self.task.collect("embeddings", id=sample["id"], image=sample["image_rows"], text=text, images=images)
            loss = (text - images).norm(dim=1).sum()
            return loss, len(text), {"ntokens": 1, "nsentences": len(text), "sample_size": len(text)}

        @staticmethod
        def reduce_metrics(logging_outputs):
            metrics.log_scalar("loss", 0.0)

    task.load_dataset("valid")
    criterion = task.build_criterion(OmegaConf.create({"_name": "mean_distance_of_pairs"}))
    assert isinstance(criterion, MeanDistanceOfPairs)
    own = validate(task, model, [list(range(21))])
    other = validate(task, model, [list(range(9)), list(range(9, 21))], criterion)
    names = [name for name in own if name.endswith(("_r1", "_r5", "_r10", "_median_rank", "recall_sum"))]
    assert len(names) == 9 and {name: other[name] for name in names} == {name: own[name] for name in names}


def test_validation_of_a_second_split_starts_from_nothing(task, model):
    task.load_dataset("valid")
    few = validate(task, model, [[0, 1]])
    validate(task, model, [list(range(21))])
    assert validate(task, model, [[0, 1]]) == few


def test_every_caption_has_its_own_image_and_a_model_takes_no_more_than_one(task, model):
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    batch = dataset.collater([dataset[index] for index in (3, 20, 8)])
    visual = batch["net_input"]["visual"]
    assert batch["image_rows"].tolist() == [3, 4, 0] and visual["padding_mask"].shape == (3, 1, 1)
    np.testing.assert_array_equal(visual["features"][:, 0], task.image_store.features[[3, 4, 0]])
    batch["net_input"]["visual"] = {
        name: value.repeat(1, 2, *[1] * (value.dim() - 2)) for name, value in visual.items()
    }
    with pytest.raises(ValueError, match="each sentence should have 1 image, but has 2"):
        model(**batch["net_input"])


def test_every_caption_is_in_a_batch_when_the_last_is_no_multiple_of_eight(task):
    task.load_dataset("valid")
    batches = task.dataset("valid").batch_by_size(np.arange(21), max_sentences=8, required_batch_size_multiple=8)
    assert sorted(np.concatenate(batches).tolist()) == list(range(21))


def test_task_warns_once_with_the_number_of_captions_that_are_cut(task, config, caplog):
    with open(f"{config.data}/train.tsv", "w") as file:
        file.write("image1.jpg\ta\nimage1.jpg\t" + "b " * 300 + "\n")
    task.load_dataset("train")
    assert "1 of 2 captions in" in caplog.text and "were cut at 256 tokens." in caplog.text
    assert len(caplog.records) == 1 and task.dataset("train").sizes.tolist() == [1, 256]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_features": None}, "--task image_text_matching needs a data folder and --image-features DIR"),
        ({"text_encoder": "no/such/folder"}, "text encoder 'no/such/folder' should be `sru`, `bag`, a folder"),
        ({"data": "/nowhere"}, "/nowhere should hold dict.txt, which is written last"),
    ],
)
def test_task_refuses_flags_that_lead_nowhere(config, changes, message, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=message):
        ImageTextMatchingTask.setup_task(ImageTextMatchingConfig(**{**vars(config), **changes}))


def test_task_refuses_a_split_that_is_not_there(task):
    with pytest.raises(InputError, match=r"test.tsv is missing. It has valid. Make it with: visual-grounding pre"):
        task.load_dataset("test")


def test_model_refuses_to_freeze_words_that_are_learned(task):
    flags = VisualSemanticEmbeddingConfig(text_encoder="bag", text_encoder_freeze=True)
    with pytest.raises(InputError, match="--text-encoder-freeze needs a pretrained --text-encoder, but it is 'bag'"):
        VisualSemanticEmbeddingModel.build_model(flags, task)


@pytest.fixture
def clean_fairseq() -> Iterator[None]:
    """What fairseq remembers of a training in its modules is forgotten after it."""
    yield
    metrics.reset()
    vars(checkpoint_utils.save_checkpoint).pop("best", None)


def train(config: ImageTextMatchingConfig, save_dir: Path, max_update: int, *more: object) -> None:
    """`fairseq-train`, in this process; the training set has six batches."""
    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    split = Path(config.data) / "train.tsv"
    split.write_text((Path(config.data) / "valid.tsv").read_text())
    flags = [
        config.data, "--task", "image_text_matching", "--arch", "visual_semantic_embedding", "--criterion",
        "hardest_negative_triplet", "--image-features", config.image_features, "--text-encoder", "bag", "--joint-size",
        8, "--text-embed-size", 4, "--batch-size", 4, "--optimizer", "adam", "--lr", 0.05, "--cpu", "--seed", 1,
        "--num-workers", 0, "--no-epoch-checkpoints", "--no-progress-bar", "--log-format", "simple", "--max-update",
        max_update, "--save-dir", save_dir, "--best-checkpoint-metric", "recall_sum",
        "--maximize-best-checkpoint-metric", *more,
    ]  # fmt: skip
    parser = options.get_training_parser()
    arguments = options.parse_args_and_arch(parser, input_args=[str(flag) for flag in flags])
    fairseq_train(convert_namespace_to_omegaconf(arguments))


def last_scores(log: str) -> dict[str, str]:
    """The scores of the last validation in a log."""
    line = log[log.rindex("valid on 'valid' subset") :].splitlines()[0]
    return dict(re.findall(r"((?:text|image|recall)_\w+|num_updates|loss) ([\d.]+)", line))


@pytest.mark.parametrize("earlier", [None, "RetrievalMeter", "SplitMeter"])
def test_training_that_stopped_within_an_epoch_goes_on_as_if_it_had_not(
    config, tmp_path, caplog, clean_fairseq, earlier
):
    """Earlier versions had a meter of their own, by its name, among those that fairseq saves with a checkpoint."""
    caplog.set_level(logging.INFO)
    train(config, tmp_path / "at once", 4)
    at_once = last_scores(caplog.text)
    train(config, tmp_path / "twice", 2)
    path = tmp_path / "twice/checkpoint_last.pt"
    state = load_checkpoint(path)
    assert state["extra_state"]["train_iterator"]["iterations_in_epoch"] == 2
    kinds = {kind for saved in state["extra_state"]["metrics"].values() for _, _, kind, _ in saved}
    assert kinds == {"AverageMeter", "TimeMeter", "StopwatchMeter"}
    if earlier:
        state["extra_state"]["metrics"]["valid"].append((50, "_embeddings", earlier, {}))
        torch.save(state, path)
    train(config, tmp_path / "twice", 4)
    assert "Loaded checkpoint" in caplog.text and last_scores(caplog.text) == at_once
    assert at_once["num_updates"] == "4" and len(at_once) == 11
    once, twice = (load_checkpoint(tmp_path / name / "checkpoint_last.pt") for name in ("at once", "twice"))
    assert all(torch.equal(weight, twice["model"][name]) for name, weight in once["model"].items())
    assert earlier not in {kind for _, _, kind, _ in twice["extra_state"]["metrics"]["valid"]}


def test_nothing_of_a_split_stays_in_memory_after_its_scores_are_logged(task, model, clean_fairseq):
    """fairseq's trainer logs a batch into the split's aggregator, into "valid", which lasts, and into its own."""
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    criterion = HardestNegativeTripletCriterion(task, 0.2, "both").eval()
    with metrics.aggregate(new_root=True) as split:
        for places in (range(4), range(4, 21)):
            with metrics.aggregate("valid"), metrics.aggregate() as batch:
                sample = dataset.collater([dataset[place] for place in places])
                task.reduce_metrics([task.valid_step(sample, model, criterion)[2]], criterion)
    whole = validate(task, model, [list(range(21))])
    assert split.get_smoothed_values()["recall_sum"] == whole["recall_sum"]
    assert batch.get_smoothed_values()["recall_sum"] == validate(task, model, [list(range(4, 21))])["recall_sum"]
    assert metrics.get_meters("valid").keys() == {"loss", "violations", "wps", "wpb", "bsz"}  # nothing of ours


@pytest.mark.parametrize("text_encoder", ["bag", "sru", "no/such/folder"])
def test_task_refuses_captions_that_a_killed_prepare_left(config, tmp_path, text_encoder):
    """They may be of two runs, whether the encoder has words of its own or takes those of dict.txt."""
    (tmp_path / "dict.txt").unlink()
    left = f"{tmp_path} should hold dict.txt, .* unfinished, .*: visual-grounding prepare captions … --out {tmp_path}"
    with pytest.raises(InputError, match=left):
        ImageTextMatchingTask.setup_task(ImageTextMatchingConfig(**{**vars(config), "text_encoder": text_encoder}))


def test_training_refuses_the_same_words_in_another_order(config, tmp_path, clean_fairseq):
    train(config, tmp_path / "first", 1)
    path = tmp_path / "first/checkpoint_last.pt"
    words = Path(config.data) / "dict.txt"
    learned = digest_of_symbols(Vocabulary.load(words).symbols)
    state = load_checkpoint(path)["task_state"]
    assert (state["dictionaries"], state["images_per_sentence"]) == ({"text": learned}, 1)
    words.write_text("".join(sorted(words.read_text().splitlines(True), reverse=True)))
    message = f"{words} should have the words that the checkpoint was trained with, .* of theirs {learned}"
    with pytest.raises(InputError, match=message):
        train(config, tmp_path / "first", 2)
    with pytest.raises(InputError, match=message):
        train(config, tmp_path / "second", 2, "--finetune-from-model", path)
    with pytest.raises(InputError, match=message):
        checkpoint_utils.load_model_ensemble_and_task([str(path)])  # as fairseq-validate
    assert list((tmp_path / "second").iterdir()) == []


@pytest.mark.parametrize(("words", "said"), [("abcdefghijklmnopqrstuvwxyz", False), ("acegikmoqsuwy", True)])
def test_captions_of_words_that_the_dictionary_does_not_have_are_told(config, tmp_path, caplog, words, said):
    (tmp_path / "dict.txt").write_text("".join(f"{word} 1\n" for word in words))
    ImageTextMatchingTask.setup_task(config).load_dataset("valid")
    warned = re.findall(r"(\d+) of 63 words .* in .*valid\.tsv aren't known", caplog.text)
    text = [word for line in (tmp_path / "valid.tsv").read_text().splitlines() for word in line.split("\t")[1].split()]
    assert warned == ([str(sum(word not in words for word in text))] if said else [])
