"""The criterion: two means 1:1, nothing to predict, sums over batches and processes."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics

from visual_grounding.criterions.visual_tlm import VisualTLMCriterion, summed_loss
from visual_grounding.errors import InputError

PAD = 1
TASK = SimpleNamespace(source_dictionary=SimpleNamespace(pad=lambda: PAD))


class Logits:
    """A model that returns fixed logits of what it is asked for."""

    def __init__(self, words: torch.Tensor, labels: torch.Tensor | None) -> None:
        self.words, self.labels = words, labels

    def __call__(self, words=None, regions=None, **inputs):
        return self.words[words], None if self.labels is None else self.labels[regions]


def example(words: list[list[int]], labels: list[list[int]] | None = None) -> dict:
    sample = {"word_targets": torch.tensor(words), "net_input": {}, "ntokens": 7, "nsentences": 2}
    return sample if labels is None else {**sample, "label_targets": torch.tensor(labels).unsqueeze(1)}


def logits(*shape: int) -> torch.Tensor:
    torch.manual_seed(len(shape))
    return torch.randn(shape, requires_grad=True)


def test_loss_matches_hand_worked_example():
    # Two words of which probabilities are 1/4 and 1/2; one region with 1/8: (ln 4 + ln 2)/2 + ln 8 = 4.5 ln 2.
    words = torch.tensor([[[1, 1, 2, 4.0], [1, 1, 1, 1.0]], [[3, 1, 1, 3.0], [1, 1, 2, 0.0]]]).log()
    labels = torch.tensor([[[1.0, 7.0]], [[2.0, 2.0]]]).log().unsqueeze(1)
    sample = example([[2, PAD], [PAD, 2]], [[0], [-1]])
    loss, size, logged = VisualTLMCriterion(TASK, 1.0)(Logits(words, labels), sample)
    assert loss.item() == pytest.approx(4.5 * math.log(2)) and size == logged["sample_size"] == 1
    assert (logged["words"], int(logged["word_hits"]), logged["regions"], int(logged["region_hits"])) == (2, 1, 1, 0)
    assert float(logged["word_loss"]) == pytest.approx(3 * math.log(2))


def test_loss_agrees_with_naive_loop():
    words, labels = logits(3, 5, 9), logits(3, 1, 4, 6)
    torch.manual_seed(3)
    targets = torch.where(torch.rand(3, 5) < 0.5, torch.randint(2, 9, (3, 5)), PAD)
    label_targets = torch.where(torch.rand(3, 4) < 0.5, torch.randint(0, 6, (3, 4)), -1)
    of_words = [-words[b, t].log_softmax(-1)[targets[b, t]] for b in range(3) for t in range(5) if targets[b, t] != PAD]
    of_regions = [
        -labels[b, 0, r].log_softmax(-1)[label_targets[b, r]]
        for b in range(3) for r in range(4) if label_targets[b, r] >= 0
    ]  # fmt: skip
    sample = example(targets.tolist(), label_targets.tolist())
    loss = VisualTLMCriterion(TASK, 1.0)(Logits(words, labels), sample)[0]
    torch.testing.assert_close(loss, torch.stack(of_words).mean() + torch.stack(of_regions).mean())


def test_weight_of_the_regions_multiplies_their_mean_alone():
    words, labels = logits(2, 3, 9), logits(2, 1, 4, 6)
    sample = example([[3, PAD, 4]] * 2, [[-1, 2, -1, 3]] * 2)
    found = {}
    for weight in (0.0, 1.0, 0.1):
        loss, _, logged = VisualTLMCriterion(TASK, weight)(Logits(words, labels), sample)
        with metrics.aggregate(new_root=True) as scores:
            VisualTLMCriterion.reduce_metrics([logged])
        found[weight] = loss, scores.get_smoothed_values()
        assert found[weight][1]["loss"] == pytest.approx(loss.item() / math.log(2), abs=2e-3)
        assert found[weight][1]["region_loss"] == found[0.0][1]["region_loss"]
    of_words, of_both = found[0.0][0], found[1.0][0]
    torch.testing.assert_close(found[0.1][0], of_words + 0.1 * (of_both - of_words))
    for weight in (-0.5, math.inf, math.nan):
        with pytest.raises(InputError, match=f"--region-loss-weight should be a number of at least 0, but is {weight}"):
            VisualTLMCriterion(TASK, weight)


@pytest.mark.parametrize("empty", ["words", "regions", "both"])
def test_nothing_to_predict_is_a_loss_of_zero_with_a_gradient_of_zero(empty):
    words, labels = logits(2, 3, 9), logits(2, 1, 4, 6)
    targets = [[PAD] * 3] * 2 if empty != "regions" else [[3, PAD, 4]] * 2
    label_targets = [[-1] * 4] * 2 if empty != "words" else [[-1, 2, -1, 3]] * 2
    loss, _, logged = VisualTLMCriterion(TASK, 1.0)(Logits(words, labels), example(targets, label_targets))
    loss.backward()
    assert math.isfinite(loss.item()) and (loss.item() == 0) == (empty == "both")
    assert words.grad.isfinite().all() and labels.grad.isfinite().all()  # both took part: several processes wait
    assert words.grad.any() == (empty == "regions") and labels.grad.any() == (empty == "words")
    with metrics.aggregate(new_root=True) as scores:
        VisualTLMCriterion.reduce_metrics([logged])
    part = {"words": "word", "regions": "region"}.get(empty)
    values = scores.get_smoothed_values()
    assert "nan" not in str(values) and (part is None or f"{part}_loss" not in values)


def test_half_precision_is_summed_in_float32():
    loss, hits = summed_loss(torch.zeros(40_000, 8).half(), torch.zeros(40_000).long())
    assert loss.item() == pytest.approx(40_000 * math.log(8)) and int(hits) == 40_000  # float16 ends at 65,504


def test_text_alone_is_the_loss_of_its_words():
    words = logits(2, 3, 9)
    loss, _, logged = VisualTLMCriterion(TASK, 1.0)(Logits(words, None), example([[3, PAD, 4]] * 2))
    alone = torch.nn.functional.cross_entropy(words[:, [0, 2]].flatten(0, 1), torch.tensor([3, 4, 3, 4]))
    torch.testing.assert_close(loss, alone)
    assert not any(name.startswith("region") for name in logged)


def test_what_is_logged_is_summed_before_it_is_divided():
    outputs = [
        {"word_loss": 4 * math.log(2), "word_part": 4 * math.log(2), "words": 4, "word_hits": 1,
         "region_loss": math.log(2), "region_part": 0.5 * math.log(2), "regions": 1, "region_hits": 1,
         "sample_size": 1},
        {"word_loss": torch.tensor(8 * math.log(2)), "word_part": torch.tensor(8 * math.log(2)), "words": 2,
         "word_hits": torch.tensor(2), "region_loss": 0.0, "region_part": 0.0, "regions": 0, "region_hits": 0,
         "sample_size": 1},
    ]  # fmt: skip
    summed = {name: sum(output[name] for output in outputs) for name in outputs[0]}
    for logged in (outputs, [summed]):
        with metrics.aggregate(new_root=True) as scores:
            VisualTLMCriterion.reduce_metrics(logged)
        values = scores.get_smoothed_values()
        assert values == {
            "word_loss": 2.0,
            "ppl": 4.0,
            "word_accuracy": 0.5,
            "region_loss": 1.0,
            "region_accuracy": 1.0,
            "loss": 2.5,  # regions have half the weight
        }
    with metrics.aggregate(new_root=True) as scores:  # batch after batch, as in validation
        for output in outputs:
            VisualTLMCriterion.reduce_metrics([output])
    assert scores.get_smoothed_values() == values
    assert VisualTLMCriterion.logging_outputs_can_be_summed()
    assert all(type(value) is float for value in values.values())
