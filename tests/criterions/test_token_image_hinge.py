"""The criterion: means over tokens or sentences, who takes part, and nothing but numbers that can be summed."""

from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from visual_grounding.criterions.token_image_hinge import TokenImageHingeCriterion

PADDED = [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]]  # four captions of up to four pieces


def sample(rows: list[int], absent: list[int] | None = None) -> dict[str, Any]:
    """Pieces of a batch; the first and the last of each caption are special."""
    mask = torch.tensor(PADDED[: len(rows)], dtype=torch.bool)
    special = torch.zeros_like(mask)
    special[:, 0] = True
    special[torch.arange(len(rows)), (~mask).sum(dim=1) - 1] = True
    gone = torch.tensor([place in (absent or []) for place in range(len(rows))])
    return {
        "id": torch.arange(len(rows)),
        "image_rows": torch.tensor(rows),
        "special_mask": special,
        "ntokens": int((~mask).sum()),
        "nsentences": len(rows),
        "net_input": {"token_padding_mask": mask, "visual": {"padding_mask": gone.view(-1, 1, 1)}},
    }


class FixedModel:
    """Returns the same vectors for any batch: tokens (B, 4, 3), or sentences (B, 3)."""

    def __init__(self, captions: int = 4, sentence_level: bool = False) -> None:
        generator = torch.Generator().manual_seed(0)
        shape = (captions, 3) if sentence_level else (captions, 4, 3)
        self.text = normalize(torch.randn(*shape, generator=generator), dim=-1).requires_grad_()
        self.images = normalize(torch.randn(captions, 3, generator=generator), dim=1).requires_grad_()

    def __call__(self, token_padding_mask, visual):
        if self.text.dim() == 2:
            return self.text, self.images
        return self.text.masked_fill(token_padding_mask.unsqueeze(2), 0), self.images


class Task:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.given: dict[str, dict[str, torch.Tensor]] = {}

    def collect(self, name, **values):
        self.given[name] = values


def naive_loss(
    model: FixedModel, negatives: list[list[int]], pieces: list[list[int]], margin: float = 0.5
) -> list[float]:
    """Of each piece of each caption that takes part."""
    losses, text, images = [], model.text.detach(), model.images.detach()
    for caption, (others, places) in enumerate(zip(negatives, pieces)):
        for place in places if others else []:
            token = text[caption] if text.dim() == 2 else text[caption, place]
            own = float(token @ images[caption])
            terms = [max(0.0, margin - own + float(token @ images[other])) for other in others]
            losses.append(sum(terms) / len(terms))
    return losses


REAL = [[place for place in range(4) if not row[place]] for row in PADDED]
ROWS = [3, 3, 5, 6]  # captions 0 and 1 are of one image


@pytest.mark.parametrize("margin", [0.5, 0.2])
@pytest.mark.parametrize(
    ("choice", "negatives"), [("one", [[2], [3], [0], [1]]), ("all", [[2, 3], [2, 3], [0, 1, 3], [0, 1, 2]])]
)
def test_criterion_sums_the_loss_of_every_piece_special_ones_included(choice, negatives, margin):
    model = FixedModel()
    loss, size, logged = TokenImageHingeCriterion(None, margin, choice)(model, sample(ROWS))
    expected = naive_loss(model, negatives, REAL, margin)
    assert size == logged["sample_size"] == 13 == len(expected)
    assert loss.item() == pytest.approx(sum(expected)) == pytest.approx(logged["loss"])
    assert logged["violations"] == sum(term > 0 for term in expected) > 0
    assert (logged["without_image"], logged["without_negative"]) == (0, 0)
    assert all(type(value) in (int, float) for value in logged.values())
    each, _, _ = TokenImageHingeCriterion(None, margin, choice)(model, sample(ROWS), reduce=False)
    assert each.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("choice", ["one", "all"])
def test_caption_without_its_image_takes_no_part_and_is_no_negative(choice):
    model = FixedModel()
    loss, size, logged = TokenImageHingeCriterion(None, 0.5, choice)(model, sample(ROWS, absent=[2]))
    expected = naive_loss(model, [[3], [3], [], [1] if choice == "one" else [0, 1]], REAL)
    assert (size, logged["without_image"], logged["without_negative"]) == (11, 1, 0)
    assert loss.item() == pytest.approx(sum(expected))
    loss.backward()
    assert not model.images.grad[2].any() and not model.text.grad[2].any() and model.text.grad[0].any()


@pytest.mark.parametrize("choice", ["one", "all"])
def test_captions_of_a_single_image_are_counted_and_have_no_loss(choice):
    model = FixedModel()
    loss, size, logged = TokenImageHingeCriterion(None, 0.5, choice)(model, sample([5, 5, 5, 6], absent=[3]))
    loss.backward()
    # The last caption's image is absent, though there would be another one for it.
    assert (loss.item(), size, logged["without_image"], logged["without_negative"]) == (0.0, 0, 1, 3)
    assert not model.images.grad.any() and not model.text.grad.any()


@pytest.mark.parametrize("choice", ["one", "all"])
def test_sentence_vector_has_one_term_a_caption(choice):
    model = FixedModel(sentence_level=True)
    loss, size, _ = TokenImageHingeCriterion(None, 0.5, choice)(model, sample(ROWS))
    negatives = [[2], [3], [0], [1]] if choice == "one" else [[2, 3], [2, 3], [0, 1, 3], [0, 1, 2]]
    assert size == 4 and loss.item() == pytest.approx(sum(naive_loss(model, negatives, [[0]] * 4)))


def test_criterion_compares_in_float32_under_autocast():
    for choice in ("one", "all"):
        criterion, model = TokenImageHingeCriterion(None, 0.5, choice), FixedModel()
        exact, _, _ = criterion(model, sample(ROWS))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed, _, _ = criterion(model, sample(ROWS))
        assert mixed.item() == exact.item()


def test_evaluation_hands_over_tokens_without_special_pieces_and_the_mean_of_all():
    task, model = Task(), FixedModel()
    criterion = TokenImageHingeCriterion(task, 0.5, "one")
    criterion(model, sample(ROWS))
    assert task.given == {}  # training
    criterion.eval()(model, sample(ROWS))
    assert set(task.given) == {"embeddings", "tokens"}
    # Pieces 1 and 2 of caption 0 are no special ones, piece 1 of caption 1; caption 2 has [CLS] and [SEP] alone.
    tokens = task.given["tokens"]["tokens"]
    assert tokens.any(dim=2).tolist() == [[0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 1, 1, 0]]
    assert torch.equal(tokens[0, 1:3], model.text[0, 1:3])
    torch.testing.assert_close(task.given["embeddings"]["text"][1], normalize(model.text[1, :3].mean(dim=0), dim=0))
    task.given.clear()
    sentences = FixedModel(sentence_level=True)
    criterion(sentences, sample(ROWS))
    assert set(task.given) == {"embeddings"} and torch.equal(task.given["embeddings"]["text"], sentences.text)


def test_numbers_of_several_processes_are_those_of_one():
    from fairseq.logging import metrics

    parts = [
        {"loss": 1.0, "violations": 2, "without_image": 1, "without_negative": 0, "sample_size": 2},
        {"loss": 0.5, "violations": 1, "without_image": 2, "without_negative": 4, "sample_size": 4},
    ]
    whole = {name: parts[0][name] + parts[1][name] for name in parts[0]}
    assert TokenImageHingeCriterion.logging_outputs_can_be_summed()
    for outputs in (parts, [whole]):
        with metrics.aggregate(new_root=True) as scores:
            TokenImageHingeCriterion.reduce_metrics(outputs)
        expected = {"loss": 0.25, "violations": 0.5, "absent": 3, "without_negative": 4}
        assert scores.get_smoothed_values() == expected
    with metrics.aggregate(new_root=True) as scores:
        TokenImageHingeCriterion.reduce_metrics([{"sample_size": 0}])
    assert scores.get_smoothed_values() == {"loss": 0.0, "violations": 0.0}
