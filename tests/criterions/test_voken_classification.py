"""The criterion of VOK eq. 1: by hand, its sums over batches and processes, what is logged of what there isn't."""

import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.logging import metrics
from small_voken_lm import model_flags, voken_task, whole_split
from torch.nn import functional

from visual_grounding.criterions.voken_classification import VokenClassificationCriterion
from visual_grounding.models.voken_lm import Found
from visual_grounding.modules.linear_cross_entropy import Answers

SCORES = ("loss", "voken_loss", "mlm_loss", "ppl", "word_accuracy", "voken_accuracy", "voken_accuracy_masked",
          "voken_accuracy_visible")  # fmt: skip


def setting(world: Path, **given: Any):
    task = voken_task(world, mask_prob=0.4, **given)
    torch.manual_seed(1)
    return task, task.build_model(model_flags()).eval(), VokenClassificationCriterion(task)


def reduced(outputs: list[dict[str, Any]]) -> dict[str, float]:
    with metrics.aggregate(new_root=True) as logged:
        VokenClassificationCriterion.reduce_metrics(outputs)
    return logged.get_smoothed_values()


class Told:
    """A model that answers what it is told."""

    def __init__(self, words: Answers | None, vokens: Answers | None) -> None:
        self.found = Found(words, vokens)

    def __call__(self, src_tokens: torch.Tensor, **_: Any) -> Found:
        return self.found


def by_hand(weights: dict[str, float]) -> tuple[torch.Tensor, int, dict[str, Any]]:
    """Two blocks; of five vokens, two of them at masked places, 3 are right, 1 of them masked; of two words 1."""
    words = torch.tensor([[-1, 7, -1, -1, -1], [-1, -1, 8, -1, -1]])
    vokens = torch.tensor([[-1, 3, 2, -1, -1], [-1, 1, 4, 0, -1]])
    model = Told(
        Answers(torch.tensor(4 * math.log(2)), torch.tensor([True, False])),
        Answers(torch.tensor(5 * math.log(2)), torch.tensor([False, True, False, True, True])),
    )
    sample = {"word_targets": words, "voken_targets": vokens, "nsentences": 2, "ntokens": 10,
              "net_input": {"src_tokens": words}}  # fmt: skip
    return VokenClassificationCriterion(Namespace(cfg=Namespace(**weights)))(model, sample)


def test_eq_1_by_hand():
    """5 bits over five vokens and 4 bits over two words: 1 + λ 2, times the two blocks."""
    loss, size, logged = by_hand({"voken_weight": 1.0, "mlm_weight": 0.5})
    assert size == logged["sample_size"] == 2 and loss.item() == pytest.approx(2 * (1 + 0.5 * 2) * math.log(2))
    scores = reduced([logged])
    assert {name: scores[name] for name in SCORES} == {
        "loss": 2.0, "voken_loss": 1.0, "mlm_loss": 2.0, "ppl": 4.0, "word_accuracy": 0.5, "voken_accuracy": 0.6,
        "voken_accuracy_masked": 0.5, "voken_accuracy_visible": pytest.approx(2 / 3, abs=1e-4),
    }  # fmt: skip
    assert all(isinstance(scores[name], float) for name in SCORES)  # a tensor would go into checkpoints
    loss, _, logged = by_hand({"voken_weight": 2.0, "mlm_weight": 0.0})
    assert loss.item() == pytest.approx(2 * 2 * math.log(2)) and reduced([logged])["loss"] == 2.0


def test_loss_is_the_sum_of_both_means_as_a_naive_loop_has_it(voken_world):
    task, model, criterion = setting(voken_world, mlm_weight=0.7)
    batch = whole_split(task, "train")
    loss, size, logged = criterion(model, batch)
    means = []
    with torch.no_grad():
        hidden = model.states(**batch["net_input"])
        for scores, targets in (
            (model.voken_head.scores(hidden), batch["voken_targets"]),
            (model.word_head(hidden, model.words), batch["word_targets"]),
        ):
            losses = [
                functional.cross_entropy(scores[row, place], targets[row, place])
                for row in range(size)
                for place in range(targets.shape[1])
                if targets[row, place] != -1
            ]
            means.append(float(torch.stack(losses).mean()))
    assert loss.item() == pytest.approx(size * (means[0] + 0.7 * means[1]), rel=1e-5)
    scores = reduced([logged])
    assert scores["voken_loss"] == pytest.approx(means[0] / math.log(2), abs=1e-3)
    assert scores["ppl"] == pytest.approx(math.exp(means[1]), rel=1e-3)


def test_scores_of_several_batches_and_processes_are_those_of_all_blocks_together(voken_world):
    task, model, criterion = setting(voken_world, mlm_weight=0.7)
    task.load_dataset("train")
    dataset = task.dataset("train")
    parts = [range(3), range(3, 4), range(4, len(dataset))]
    outputs = [criterion(model, dataset.collater([dataset[index] for index in part]))[2] for part in parts]
    together, whole = reduced(outputs), reduced([criterion(model, whole_split(task, "train"))[2]])
    for name in SCORES:
        assert together[name] == pytest.approx(whole[name], abs=2e-3, rel=2e-3), name
    summed = {key: sum(output[key] for output in outputs) for key in outputs[0]}
    assert reduced([summed]) == together  # as fairseq does over processes
    assert VokenClassificationCriterion.logging_outputs_can_be_summed()


@pytest.mark.parametrize("flags", [{"voken_weight": 0.0}, {"vokens": None}])
def test_without_vokens_it_is_plain_masked_language_modelling(voken_world, flags):
    losses = []
    for given in ({}, flags):
        task, model, criterion = setting(voken_world, **given)
        batch = whole_split(task, "train")
        loss, _, logged = criterion(model, batch)
        model.zero_grad()
        loss.backward()
        losses.append((logged["mlm_loss"].item(), sorted(reduced([logged]))))
    assert losses[0][0] == losses[1][0] and losses[1][1] == ["loss", "mlm_loss", "ppl", "word_accuracy"]
    masked = batch["word_targets"] >= 0
    with torch.no_grad():
        scores = model.word_head(model.states(**batch["net_input"])[masked], model.words)
        expected = functional.cross_entropy(scores, batch["word_targets"][masked])
    torch.testing.assert_close(loss, expected * len(masked))


def test_vokens_alone_log_nothing_of_words(voken_world):
    task, model, criterion = setting(voken_world, mlm_weight=0.0)
    scores = reduced([criterion(model, whole_split(task, "train"))[2]])
    assert {name for name in SCORES if name in scores} == {
        "loss", "voken_loss", "voken_accuracy", "voken_accuracy_masked", "voken_accuracy_visible"
    }  # fmt: skip
    assert scores["loss"] == scores["voken_loss"]


def test_batch_with_nothing_to_tell_is_a_loss_of_0_that_reaches_all_weights(voken_world):
    task, model, criterion = setting(voken_world)
    batch = whole_split(task)
    for name in ("word_targets", "voken_targets"):
        batch[name] = torch.full_like(batch[name], -1)
    loss, _, logged = criterion(model, batch)
    loss.backward()
    assert loss.item() == 0 and all(not weight.grad.any() for weight in model.parameters())
    assert {name for name in reduced([logged])} == {"loss"}


def test_sentence_labels_are_asked_of_cls(voken_world, tmp_path):
    from small_voken_lm import make_voken_world

    task, model, criterion = setting(make_voken_world(tmp_path, label="sentence"), voken_sentence_label="cls")
    batch = whole_split(task, "train")
    logged = criterion(model, batch)[2]
    assert logged["vokens"] == int((batch["voken_targets"][:, 0] >= 0).sum()) == len(batch["id"])
    assert logged["masked"] == 0 and "voken_accuracy_masked" not in reduced([logged])
