"""The loss of grounded language modelling: worked out with torch's own, side by side, alone, and of nothing."""

import math

import pytest
import torch
from fairseq.logging import metrics
from small_grounded import make_task, make_world, model_flags, whole
from torch.nn import functional

from visual_grounding.criterions.grounded_masked_lm import GroundedMaskedLMCriterion
from visual_grounding.errors import InputError


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


def build(world, **flags):
    task = make_task(world, **flags)
    torch.manual_seed(2)
    model = task.build_model(model_flags(world))
    for weight in model.parameters():
        if weight.requires_grad and weight.dim() == 1:
            torch.nn.init.normal_(weight, std=0.1)
    return task, model.eval()


def naive(task, model, sample, power=1.0):
    """Each line alone, logits written out."""
    words, right, regions = [], 0, []
    net = sample["net_input"]
    for row in range(len(sample["id"])):
        tokens = net["src_tokens"][row : row + 1, : net["src_lengths"][row]]
        visual = {name: each[row : row + 1] for name, each in net["visual"].items()} if "visual" in net else None
        hidden = sample["hidden_words"][row, : tokens.shape[1]]
        if sample["word_side"][row]:
            states = model.encoder(tokens.masked_fill(hidden, task.mask), visual).text[0, 1:]  # without [CLS]
            logits = model.word_head(states) @ model.encoder.text.words.T + model.word_head.bias
            for place in hidden.nonzero().ravel():
                words.append(functional.cross_entropy(logits[place], tokens[0, place]))
                right += int(logits[place].argmax() == tokens[0, place])
        if sample["region_side"][row]:
            masked = sample["hidden_regions"][row : row + 1]
            found = model.image_head(model.encoder(tokens, visual, masked).regions[0])
            for number, place in enumerate(masked.flatten()):
                if place:
                    feature = visual["features"].flatten(1, 2)[0, number].float()
                    regions.append((found[number] - feature).abs().pow(power).mean())
    return words, right, regions


@pytest.mark.parametrize(
    ("objective", "split", "power"),
    [("jmlm", "valid", 1.0), ("jmrm", "train", 1.0), ("both", "train", 2.0), ("both", "valid", 1.0)],
)
def test_loss_agrees_with_a_naive_twin(world, objective, split, power):
    regions = {"region_mask_prob": 0.4} if objective != "jmlm" else {}
    task, model = build(world, grounding_objective=objective, **regions)
    sample = whole(task, split)
    loss, size, logged = GroundedMaskedLMCriterion(task, power)(model, sample)
    words, right, regions = naive(task, model, sample, power)
    expected = sum(torch.stack(part).mean() for part in (words, regions) if part)
    assert size == 1 and loss.item() == pytest.approx(expected.item(), abs=1e-4)
    counted = [logged.get(name, 0) for name in ("words", "regions", "right_words")]
    assert counted == [len(words), len(regions), right]
    assert float(logged.get("mlm_loss", 0)) == pytest.approx(sum(words, torch.zeros(())).item(), abs=1e-3)
    assert float(logged.get("region_loss", 0)) == pytest.approx(sum(regions, torch.zeros(())).item(), abs=1e-3)
    assert bool(words) or bool(regions)


def test_nothing_hidden_is_a_loss_of_0_with_gradients(world):
    task, model = build(world)
    sample = whole(task)
    sample["hidden_words"][:] = False
    loss, _, logged = GroundedMaskedLMCriterion(task, 1.0)(model, sample)
    loss.backward()
    assert loss.item() == 0 and logged["words"] == 0 and logged["regions"] == 0
    assert all((weight.grad is not None) == weight.requires_grad for weight in model.parameters())


def test_gradients_reach_what_is_trained_and_nothing_else(world):
    task, model = build(world, grounding_objective="both", mask_prob=0.5)
    sample = whole(task, "valid")
    GroundedMaskedLMCriterion(task, 1.0)(model, sample)[0].backward()
    for name, weight in model.named_parameters():
        assert (weight.grad is not None and bool(weight.grad.any())) == (not name.startswith("encoder.text.")), name


def test_metrics_are_means_of_what_is_hidden_however_it_is_batched(world):
    task, model = build(world, grounding_objective="both", mask_prob=0.4, region_mask_prob=0.4)
    task.load_dataset("valid")
    dataset, criterion = task.dataset("valid"), GroundedMaskedLMCriterion(task, 1.0)
    found = []
    for size in (12, 5, 1):
        with torch.no_grad(), metrics.aggregate(new_root=True) as logged:
            for start in range(0, 12, size):
                batch = dataset.collater([dataset[row] for row in range(start, min(12, start + size))])
                GroundedMaskedLMCriterion.reduce_metrics([criterion(model, batch)[2]])
        found.append(logged.get_smoothed_values())
    words, right, regions = naive(task, model, whole(task, "valid"))
    bits = torch.stack(words).mean().item() / math.log(2)
    for values in found:
        assert values["mlm_loss"] == pytest.approx(bits, abs=2e-3) and values["ppl"] == pytest.approx(2**bits, abs=0.02)
        assert values["word_accuracy"] == pytest.approx(right / len(words), abs=1e-4)
        assert values["region_loss"] == pytest.approx(torch.stack(regions).mean().item(), abs=1e-4)
        assert values["loss"] == pytest.approx(values["mlm_loss"] + values["region_loss"], abs=2e-3)
    with metrics.aggregate(new_root=True) as logged:
        GroundedMaskedLMCriterion.reduce_metrics([{"sample_size": 1}])
    assert logged.get_smoothed_values() == {"loss": 0}


@pytest.mark.parametrize(("first", "then"), [("word", "region"), ("region", "word")])
def test_an_interval_of_the_log_may_lack_what_the_one_before_had(first, then):
    """fairseq empties the meters of `train_inner` after each line of the log, and keeps them."""
    logged = {
        "word": {"mlm_loss": 6 * math.log(2), "words": 3, "right_words": 1, "sample_size": 3},
        "region": {"region_loss": 1.5, "regions": 3, "sample_size": 3},
    }
    expected = {"word": 2.0, "region": 0.5}
    with metrics.aggregate("interval", new_root=True) as meters:
        for part in (first, then):
            metrics.reset_meters("interval")
            GroundedMaskedLMCriterion.reduce_metrics([logged[part]])
            assert meters.get_smoothed_values()["loss"] == pytest.approx(expected[part])


@pytest.mark.parametrize("objective", ["jmlm", "jmrm", "both"])
def test_processes_log_the_same_whatever_their_batches_hide(world, objective):
    """fairseq adds up what they log in the order of the names, numbers by themselves and tensors by themselves."""
    regions = {} if objective == "jmlm" else {"region_mask_prob": 0.5}
    task, model = build(world, grounding_objective=objective, mask_prob=0.3, **regions)
    task.load_dataset("valid")
    dataset, criterion = task.dataset("valid"), GroundedMaskedLMCriterion(task, 1.0)
    with torch.no_grad():
        logged = [criterion(model, dataset.collater([dataset[row]]))[2] for row in range(12)]
    assert len({tuple((name, torch.is_tensor(value)) for name, value in each.items()) for each in logged}) == 1
    words, regions = ({bool(each[name]) for each in logged} for name in ("words", "regions"))
    hide = {"jmlm": (words,), "jmrm": (regions,), "both": (words, regions)}[objective]
    assert all(each == {True, False} for each in hide)  # there are batches of either kind
    summed = {name: sum(float(each[name]) for each in logged) for name in logged[0]}
    found = []
    for outputs in (logged, [summed]):
        with metrics.aggregate(new_root=True) as values:
            GroundedMaskedLMCriterion.reduce_metrics(outputs)
        found.append(values.get_smoothed_values())
    assert found[0] == pytest.approx(found[1])


def test_a_power_of_regions_that_nothing_learns_is_refused(world):
    with pytest.raises(InputError, match="--region-loss-power is of regions that are learned: give --grounding-obj"):
        GroundedMaskedLMCriterion(make_task(world), 2.0)
    GroundedMaskedLMCriterion(make_task(world, grounding_objective="jmrm"), 2.0)


@pytest.mark.parametrize("power", [0.0, -1.0, math.inf, math.nan])
def test_a_power_that_is_none_is_refused(world, power):
    with pytest.raises(InputError, match="--region-loss-power should be a number above 0"):
        GroundedMaskedLMCriterion(make_task(world), power)
