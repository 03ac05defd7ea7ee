"""VLP's pre-training criterion: its loss of a batch, its sums over processes, what it logs of what there isn't."""

import math
from pathlib import Path

import pytest
import torch
from fairseq.logging import metrics
from torch.nn import functional
from vision_language import flags, make_task, make_world, whole

from visual_grounding.criterions.masked_lm_with_paired_image import MaskedLMWithPairedImageCriterion


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def setting(world: Path, **given: object):
    task = make_task(world, mask_prob=0.4, **given)
    torch.manual_seed(1)
    return task, task.build_model(flags()).eval(), MaskedLMWithPairedImageCriterion(task)


def reduced(outputs: list[dict]) -> dict[str, float]:
    with metrics.aggregate(new_root=True) as logged:
        MaskedLMWithPairedImageCriterion.reduce_metrics(outputs)
    return logged.get_smoothed_values()


def test_loss_is_the_sum_of_both_means_times_the_sentences(world):
    task, model, criterion = setting(world)
    batch = whole(task, "train")
    loss, size, logged = criterion(model, batch)
    masks = batch["target"] != 1, batch["tag_target"] != 1
    with torch.no_grad():
        found = model(**batch["net_input"], hidden_words=masks[0], hidden_tags=masks[1])
    hidden = torch.cat([batch["target"][masks[0]], batch["tag_target"][masks[1]]])
    logits, known = torch.cat([found.words, found.tags]), batch["paired"] >= 0
    mlm = functional.cross_entropy(logits, hidden)
    paired = functional.binary_cross_entropy_with_logits(found.paired[known], batch["paired"][known].float())
    assert size == 24 and known.sum() == 23
    torch.testing.assert_close(loss, 24 * (mlm + paired))
    scores = reduced([logged])
    bits = {"loss": mlm + paired, "mlm_loss": mlm, "paired_image_loss": paired}
    for name, nats in bits.items():
        assert scores[name] == round(float(nats) / math.log(2), 3), name
    assert scores["ppl"] == pytest.approx(math.exp(float(mlm)), abs=0.01)
    right = (found.words.argmax(1) == batch["target"][masks[0]]).float().mean()
    assert scores["word_accuracy"] == pytest.approx(float(right), abs=1e-4)
    right = (found.tags.argmax(1) == batch["tag_target"][masks[1]]).float().mean()
    assert scores["tag_accuracy"] == pytest.approx(float(right), abs=1e-4)
    right = ((found.paired > 0).long() == batch["paired"])[known].float().mean()
    assert scores["paired_image_accuracy"] == pytest.approx(float(right), abs=1e-4)


def test_scores_of_several_batches_and_processes_are_those_of_all_items_together(world):
    task, model, criterion = setting(world)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    parts = [[0, 1, 2], [3, 4, 5, 6], [7]]
    outputs = [criterion(model, dataset.collater([dataset[index] for index in part]))[2] for part in parts]
    (one,) = [criterion(model, whole(task))[2]]
    together, whole_split = reduced(outputs), reduced([one])
    for name in ("mlm_loss", "word_accuracy", "tag_accuracy", "paired_image_loss", "paired_image_accuracy"):
        assert together[name] == pytest.approx(whole_split[name], abs=1.1e-3), name
    summed = {key: sum(output[key] for output in outputs) for key in outputs[0]}
    assert reduced([summed]) == together  # as fairseq does over processes


def test_losses_are_logged_in_bits_and_perplexity_is_of_what_is_hidden():
    """Three words of 2, 3 and 1 bits, a tag of 2; two pairs of 1 bit: 8 / 4 bits and 1 bit, so a perplexity of 4."""
    outputs = [
        {"loss": 6 * math.log(2), "mlm_loss": 5 * math.log(2), "words": 2, "tags": 0, "pairs": 1,
         "paired_image_loss": math.log(2), "sample_size": 1},
        {"loss": 6 * math.log(2), "mlm_loss": 3 * math.log(2), "words": 1, "tags": 1, "pairs": 1,
         "paired_image_loss": math.log(2), "sample_size": 3},
    ]  # fmt: skip
    scores = reduced(outputs)
    assert [scores[name] for name in ("loss", "mlm_loss", "ppl", "paired_image_loss")] == [3.0, 2.0, 4.0, 1.0]


def test_nothing_hidden_and_no_image_is_a_loss_of_0_and_scores_nothing(world):
    task, model, criterion = setting(world, image_order="blank")
    batch = whole(task)
    batch["target"] = torch.ones_like(batch["target"])
    loss, size, logged = criterion(model, batch)
    loss.backward()
    assert loss.item() == 0 and size == 8
    assert all(weight.grad is None or not weight.grad.isnan().any() for weight in model.parameters())
    scores = reduced([logged])
    assert scores["loss"] == 0 and set(scores) == {"loss"}


@pytest.mark.parametrize("bias", [-9.0, 9.0])
def test_sentence_without_images_is_neither_right_nor_wrong(world, bias):
    task, model, criterion = setting(world)
    torch.nn.init.constant_(model.paired_head.output.bias, bias)
    batch = whole(task, "train")
    right = int((batch["paired"] == (bias > 0)).sum())
    logged = criterion(model, batch)[2]
    assert (logged["pairs"], logged["right_pairs"]) == (23, right) and 0 < right < 23


def test_tags_that_were_cut_are_not_asked_for(world):
    """8 positions: [CLS], at most three words and </s> leave room for 2 tags with [SEP] or fewer."""
    task = make_task(world, mask_prob=1.0)
    torch.manual_seed(1)
    model, batch = task.build_model(flags(bert_positions=8)).eval(), whole(task, "train")
    hidden = batch["tag_target"] != 1
    with torch.no_grad():
        found = model(**batch["net_input"], hidden_words=batch["target"] != 1, hidden_tags=hidden)
    read = batch["tag_target"][found.predicted_tags]
    _, _, logged = MaskedLMWithPairedImageCriterion(task)(model, batch)
    assert logged["tags"] == len(read) < int(hidden.sum())
    assert logged["right_tags"] == int((found.tags.argmax(1) == read).sum())


def test_without_tags_words_alone_are_predicted(world):
    task, model, criterion = setting(world, image_tags=None)
    loss, _, logged = criterion(model, whole(task))
    assert logged["tags"] == 0 < logged["words"] and torch.isfinite(loss)
    assert "tag_accuracy" not in reduced([logged])


def test_only_sums_are_logged():
    assert MaskedLMWithPairedImageCriterion.logging_outputs_can_be_summed()
