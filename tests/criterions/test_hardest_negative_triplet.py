"""The criterion: sums and counts, absent images, and nothing but numbers that can be summed in training."""

from types import SimpleNamespace

import pytest
import torch

from visual_grounding import InputError
from visual_grounding.criterions.hardest_negative_triplet import HardestNegativeTripletCriterion
from visual_grounding.criterions.token_image_hinge import TokenImageHingeCriterion
from visual_grounding.modules.matching_losses import hardest_negative_triplet_loss


def sample(rows: list[int], absent: list[bool]) -> dict:
    return {
        "image_rows": torch.tensor(rows),
        "ntokens": 12,
        "nsentences": len(rows),
        "net_input": {"visual": {"padding_mask": torch.tensor(absent).view(-1, 1, 1)}},
    }


class FixedModel:
    """Returns the same embeddings for any batch."""

    def __init__(self, pairs: int) -> None:
        torch.manual_seed(0)
        self.text = torch.nn.functional.normalize(torch.randn(pairs, 3), dim=1).requires_grad_()
        self.images = torch.nn.functional.normalize(torch.randn(pairs, 3), dim=1).requires_grad_()

    def __call__(self, **inputs):
        return self.text, self.images


@pytest.mark.parametrize("direction", ["image", "both"])
def test_criterion_sums_the_loss_of_pairs_whose_image_is_there(direction):
    criterion, model = HardestNegativeTripletCriterion(None, 0.2, direction), FixedModel(5)
    loss, size, logged = criterion(model, sample([3, 3, 4, 5, 6], [False, False, True, False, False]))
    keep = [0, 1, 3, 4]
    expected = hardest_negative_triplet_loss(
        model.images[keep] @ model.text[keep].T, torch.tensor([3, 3, 5, 6]), 0.2, direction
    )
    torch.testing.assert_close(loss, expected.sum())
    assert size == logged["sample_size"] == 4 and logged["violations"] == int((expected > 0).sum())
    loss.backward()
    assert model.text.grad[2].abs().sum() == 0  # not even a negative
    assert all(isinstance(value, int | float) for value in logged.values())


def test_in_evaluation_the_task_is_handed_every_pair_with_its_number_and_in_training_none():
    handed = []
    task = SimpleNamespace(collect=lambda name, **values: handed.append((name, values)))
    criterion, model = HardestNegativeTripletCriterion(task, 0.2, "both"), FixedModel(2)
    batch = {**sample([7, 4], [False, True]), "id": torch.tensor([1, 0])}
    criterion(model, batch)
    assert not handed
    criterion.eval()(model, batch)
    ((name, values),) = handed
    assert name == "embeddings" and values.keys() == {"id", "image", "text", "images"}
    assert values["id"].tolist() == [1, 0] and values["image"].tolist() == [7, 4]
    assert torch.equal(values["text"], model.text) and torch.equal(values["images"], model.images)


def test_criterion_of_a_batch_without_any_image_is_zero_and_can_be_differentiated():
    criterion, model = HardestNegativeTripletCriterion(None, 0.2, "both"), FixedModel(2)
    loss, size, _ = criterion(model, sample([0, 1], [True, True]))
    loss.backward()
    assert (loss.item(), size) == (0.0, 0) and not model.images.grad.any()


def test_criterion_compares_in_float32_under_autocast():
    criterion, model = HardestNegativeTripletCriterion(None, 0.2, "both"), FixedModel(4)
    exact, _, _ = criterion(model, sample([0, 1, 2, 3], [False] * 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed, _, _ = criterion(model, sample([0, 1, 2, 3], [False] * 4))
    assert mixed.item() == exact.item()


def test_criterion_refuses_a_vector_for_each_token():
    model = FixedModel(2)
    model.text = model.text.unsqueeze(1)
    message = (
        "compares sentences with images, but the model gives a vector for each token. .* token_image_hinge, or with"
    )
    with pytest.raises(InputError, match=message):
        HardestNegativeTripletCriterion(None, 0.2, "image")(model, sample([0, 1], [False, False]))


@pytest.mark.parametrize("margin", [-0.1, float("nan"), float("inf")])
def test_a_margin_that_is_no_number_from_0_on_is_refused(margin):
    with pytest.raises(InputError, match="--triplet-margin should be a number of at least 0, but is"):
        HardestNegativeTripletCriterion(None, margin, "image")
    with pytest.raises(InputError, match="--token-image-margin should be a number of at least 0, but is"):
        TokenImageHingeCriterion(None, margin, "one")
    with pytest.raises(InputError, match=r"--triplet-margin should be at most 1,000,000, but is 1000001\.0"):
        HardestNegativeTripletCriterion(None, 1_000_001.0, "image")


def test_criterion_logs_means_over_pairs():
    from fairseq.logging import metrics

    with metrics.aggregate(new_root=True) as scores:
        HardestNegativeTripletCriterion.reduce_metrics(
            [{"loss": 1.0, "violations": 2, "sample_size": 2}, {"loss": 0.5, "violations": 1, "sample_size": 4}]
        )
    assert scores.get_smoothed_values() == {"loss": 0.25, "violations": 0.5}


def test_criterion_logs_how_many_captions_have_no_image():
    from fairseq.logging import metrics

    outputs = [{"loss": 1.0, "violations": 2, "sample_size": 2, "nsentences": 3}, {"sample_size": 0, "nsentences": 2}]
    with metrics.aggregate(new_root=True) as scores:
        HardestNegativeTripletCriterion.reduce_metrics(outputs)
    assert scores.get_smoothed_values()["absent"] == 3
