"""The modality loss beside cross-entropy: its sums, what is logged of them, and its own weights in training."""

import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.models.transformer import TransformerModel
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from small_models import build
from small_text_and_regions import D, small_batch, small_dictionary, small_model

from visual_grounding import InputError
from visual_grounding.criterions import label_smoothed_cross_entropy_with_modality_loss as file
from visual_grounding.modules.modality_loss import modality_distance

Criterion = file.LabelSmoothedCrossEntropyWithModalityLossCriterion
NAME = "label_smoothed_cross_entropy_with_modality_loss"


class Task(FairseqTask):
    """fairseq's, with as much of ours as the criterion asks for."""

    image_feature_size = 6
    target_dictionary = small_dictionary()

    def __init__(self, model: Any) -> None:
        super().__init__(None)
        self.built_model, self.looks_apart = type(model), getattr(model, "looks_apart", None)


def criterion_of(model: Any, weight: str = "learned", layers: str = "last", **more: Any) -> Any:
    choices = {"sentence_avg": False, "label_smoothing": 0.1, **more}
    return Criterion(Task(model), modality_weight=weight, modality_layers=layers, **choices)


def sample() -> dict[str, Any]:
    """Three sentences: with regions; with one and padding; without."""
    target = torch.tensor([[4, 5, 6, 2], [6, 7, 2, 1], [8, 2, 1, 1]])
    return {"net_input": small_batch(), "target": target, "ntokens": 9, "nsentences": 3}


def test_loss_is_cross_entropy_and_the_weighted_distances_of_chosen_layers() -> None:
    model, batch = small_model(), sample()
    plain = LabelSmoothedCrossEntropyCriterion(Task(model), False, 0.1)(model, batch)
    apart = model(**batch["net_input"], attend_apart=(0, 1))[1]["attended_apart"]
    expected = cosine = 0.0
    for layer, weight in ((0, 0.5), (1, 2.0)):
        for b, j in ((0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)):  # words of sentences with a region
            h_x, h_v = (h[b, j].tolist() for h in apart[layer])
            dot = sum(x * v for x, v in zip(h_x, h_v))
            expected += weight * (1 - dot / math.hypot(*h_x) / math.hypot(*h_v))
            cosine += dot / math.hypot(*h_x) / math.hypot(*h_v)
    loss, size, logged = criterion_of(model, "0.5,2", "0,1")(model, batch)
    assert loss.item() == pytest.approx(plain[0].item() + expected, rel=1e-5)
    assert (size, logged["modality_counted"]) == (9, 14)
    assert float(logged["modality_loss"]) == pytest.approx(expected, rel=1e-5)
    assert float(logged["translation_loss"]) == pytest.approx(plain[0].item())
    assert float(logged["nll_loss"]) == pytest.approx(float(plain[2]["nll_loss"]))
    assert float(logged["modality_weight"]) == pytest.approx(7 * 2.5)
    assert float(logged["modality_cosine"]) == pytest.approx(cosine, abs=1e-5)
    swapped = criterion_of(model, "2,0.5", "1,0")(model, batch)[0]
    assert swapped.item() == pytest.approx(loss.item())


def test_learned_weights_are_of_the_targets_embedding_and_both_looks() -> None:
    model, batch = small_model(), sample()
    criterion = criterion_of(model)
    for vector in criterion.parameters():
        torch.nn.init.normal_(vector)
    text, regions = model(**batch["net_input"], attend_apart=(1,))[1]["attended_apart"][1]
    embedded = model.decoder.embed_tokens.weight[batch["target"]]
    weight = torch.sigmoid(
        embedded @ criterion.token_weight.target + text @ criterion.token_weight.text
        + regions @ criterion.token_weight.regions
    )  # fmt: skip
    counted = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [0, 0, 0, 0]])
    expected = (weight * modality_distance(text, regions) * counted).sum()
    loss, _, logged = criterion(model, batch)
    torch.testing.assert_close(loss, logged["translation_loss"] + expected)
    torch.testing.assert_close(logged["modality_weight"], (weight * counted).sum().detach())
    loss.backward()
    assert all(vector.grad.any() for vector in criterion.parameters())


def test_weight_of_zero_is_fairseqs_criterion() -> None:
    model, batch = small_model(), sample()
    plain = LabelSmoothedCrossEntropyCriterion(Task(model), True, 0.1, 1, True)(model, batch)
    ours = criterion_of(model, "0", sentence_avg=True, ignore_prefix_size=1, report_accuracy=True)(model, batch)
    torch.testing.assert_close(ours[0], plain[0])
    assert ours[1] == plain[1] == 3
    assert all(float(ours[2][name]) == pytest.approx(float(value)) for name, value in plain[2].items())


def test_unreduced_loss_is_that_of_each_position() -> None:
    model, batch = small_model(), sample()
    for prefix in (0, 1):
        criterion = criterion_of(model, "0.4", ignore_prefix_size=prefix)
        each = criterion(model, batch, reduce=False)[0]
        assert each.shape == (3 * (4 - prefix), 1)
        torch.testing.assert_close(each.sum(), criterion(model, batch)[0])


def test_evaluation_leaves_the_modality_loss_out_but_logs_it() -> None:
    model, batch = small_model().eval(), sample()
    criterion = criterion_of(model, "0.4").eval()
    loss, _, logged = criterion(model, batch)
    assert loss.item() == float(logged["loss"]) == float(logged["translation_loss"])
    assert float(logged["modality_loss"]) > 0 and float(logged["modality_counted"]) == 7


def test_evaluation_without_the_learned_vectors_says_so_once_and_logs_nothing_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As `fairseq-validate`: a criterion that was neither trained nor loaded; on a GPU it isn't even moved there."""
    model, batch = small_model().eval(), sample()
    trained = criterion_of(model).eval()
    for vector in trained.parameters():
        torch.nn.init.normal_(vector)
    trained.load_state_dict(trained.state_dict())
    expected = trained(model, batch)
    assert expected[2]["modality_loss"] > 0 and not caplog.text
    unknown = criterion_of(model).eval()
    unknown.token_weight = None  # not used
    for _ in range(2):
        loss, _, logged = unknown(model, batch)
    assert caplog.text.count("modality_weight and modality_loss aren't logged: they need the vectors that were") == 1
    assert "fairseq-validate loads the model alone" in caplog.text
    torch.testing.assert_close(loss, expected[0])
    assert set(expected[2]) - set(logged) == {"modality_loss", "modality_weight"}
    assert logged["modality_cosine"] == expected[2]["modality_cosine"]
    with metrics.aggregate(new_root=True) as found:
        Criterion.reduce_metrics([logged])
    assert {"modality_loss", "modality_weight"}.isdisjoint(found.get_smoothed_values())
    assert "modality_cosine" in found.get_smoothed_values()


def test_vectors_are_known_once_they_are_trained(caplog: pytest.LogCaptureFixture) -> None:
    model, batch = small_model(), sample()
    criterion = criterion_of(model)
    criterion(model, batch)
    logged = criterion.eval()(model.eval(), batch)[2]
    assert float(logged["modality_weight"]) == pytest.approx(7 / 2) and not caplog.text


def test_batch_without_images_or_regions_is_cross_entropy_alone_with_a_gradient_for_every_weight() -> None:
    model = small_model()
    absent, none = sample(), sample()
    absent["net_input"]["visual"]["padding_mask"][:] = True
    none["net_input"]["visual"] = None
    for batch in (absent, none):
        criterion = criterion_of(model)
        loss, _, logged = criterion(model, batch)
        loss.backward()
        assert loss.item() == float(logged["translation_loss"]) and float(logged["modality_counted"]) == 0
        for vector in criterion.parameters():  # another process may have regions, and waits for this gradient
            assert torch.equal(vector.grad, torch.zeros_like(vector))
    plain = LabelSmoothedCrossEntropyCriterion(Task(model), False, 0.1)(model, none)
    torch.testing.assert_close(plain[0], loss)


def test_metrics_are_means_over_what_counts_in_all_processes() -> None:
    """Two processes of 4 and 6 tokens; cosines 3 of 4 and 2 of 6 that count, and a third process without regions."""
    logged = [
        {"loss": 8.0, "translation_loss": 6.0, "modality_loss": 2.0, "nll_loss": 5.0, "ntokens": 4, "sample_size": 4,
         "modality_cosine": 3.0, "modality_weight": 1.0, "modality_counted": 4.0},
        {"loss": 12.0, "translation_loss": 11.0, "modality_loss": 1.0, "nll_loss": 10.0, "ntokens": 6, "sample_size": 6,
         "modality_cosine": 2.0, "modality_weight": 4.0, "modality_counted": 6.0},
        {"loss": 5.0, "translation_loss": 5.0, "modality_loss": 0.0, "nll_loss": 5.0, "ntokens": 5, "sample_size": 5,
         "modality_cosine": 0.0, "modality_weight": 0.0, "modality_counted": 0.0},
    ]  # fmt: skip
    with metrics.aggregate(new_root=True) as found:
        Criterion.reduce_metrics(logged)
    values = found.get_smoothed_values()
    assert values["loss"] == pytest.approx(25 / 15 / math.log(2), abs=1e-3)
    assert values["translation_loss"] == pytest.approx(22 / 15 / math.log(2), abs=1e-3)
    assert values["modality_loss"] == pytest.approx(3 / 15 / math.log(2), abs=1e-3)
    assert (values["modality_cosine"], values["modality_weight"]) == (0.5, 0.5)
    with metrics.aggregate(new_root=True) as found:
        Criterion.reduce_metrics(logged[2:])
    assert "modality_cosine" not in found.get_smoothed_values()
    assert Criterion.logging_outputs_can_be_summed()


def trainer_of(model: Any, criterion: Any, *flags: str) -> Trainer:
    """fairseq's own, on the CPU."""
    parser = options.get_training_parser()
    given = ["data", "--arch", "transformer", "--optimizer", "adam", "--lr", "0.05", "--cpu", *flags]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, given))
    return Trainer(cfg, Task(model), model, criterion)


def test_vectors_are_trained_saved_and_resumed_by_fairseq_and_stay_out_of_the_model(tmp_path: Path) -> None:
    metrics.reset()
    model = small_model()
    trainer = trainer_of(model, criterion_of(model))
    for _ in range(3):
        trainer.train_step([sample()])
    learned = {name: value.clone() for name, value in trainer.get_criterion().state_dict().items()}
    assert set(learned) == {f"token_weight.{name}" for name in ("target", "text", "regions")}
    assert all(value.any() for value in learned.values())
    assert not any("token_weight" in name for name in model.state_dict())
    trainer.consolidate_optimizer()
    trainer.save_checkpoint(str(tmp_path / "checkpoint.pt"), {"val_loss": 1.0})
    saved = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "checkpoint.pt"))
    assert saved["criterion"].keys() == learned.keys() and saved["model"].keys() == model.state_dict().keys()

    resumed = trainer_of(small_model(), criterion_of(model))
    resumed.load_checkpoint(str(tmp_path / "checkpoint.pt"))
    for name, value in resumed.get_criterion().state_dict().items():
        assert torch.equal(value, learned[name])
    for each in (trainer, resumed):
        each.train_step([sample()])
    torch.testing.assert_close(trainer.get_criterion().state_dict(), resumed.get_criterion().state_dict())
    torch.testing.assert_close(trainer.get_model().state_dict(), resumed.get_model().state_dict())


def test_vectors_start_anew_from_a_checkpoint_without_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A second stage may be the first with a modality loss."""
    caplog.set_level("INFO")
    metrics.reset()
    model = small_model()
    first = trainer_of(model, LabelSmoothedCrossEntropyCriterion(Task(model), False, 0.1))
    first.consolidate_optimizer()
    first.save_checkpoint(str(tmp_path / "checkpoint.pt"), {"val_loss": 1.0})
    second = trainer_of(small_model(), criterion_of(model))
    second.load_checkpoint(str(tmp_path / "checkpoint.pt"), reset_optimizer=True)
    assert not any(value.any() for value in second.get_criterion().state_dict().values())
    assert caplog.text.count("the checkpoint has no weights of the modality loss: they start anew") == 1


@pytest.mark.parametrize(
    ("weight", "layers", "message"),
    [
        ("0.4", "2", r"--modality-layers should be .* decoder's layers \(0 to 1\) with commas between, but is '2'\."),
        ("0.4", "0,0", "but is '0,0'"),
        ("0.4", "first", "but is 'first'"),
        ("0.4", "-1", "but is '-1'"),
        ("-1", "last", r"--modality-weight should be learned, a number .* or 1 .* each of the layers 1, but is '-1'\."),
        ("nan", "last", "but is 'nan'"),
        ("much", "last", "but is 'much'"),
        ("1,2,3", "all", "or 2 with commas between, one for each of the layers 0, 1, but is '1,2,3'"),
    ],
)
def test_weights_and_layers_that_make_no_sense_are_refused(weight: str, layers: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        criterion_of(small_model(), weight, layers)


def test_model_whose_decoder_has_no_second_look_is_refused_by_name() -> None:
    with pytest.raises(
        InputError, match=r"but that of --arch visual_aware_transformer doesn't.*or --criterion label_sm"
    ):
        criterion_of(build("visual_aware_transformer"))
    assert not hasattr(TransformerModel, "looks_apart")
    with pytest.raises(InputError, match="but that of this task's model doesn't say that it does"):
        Criterion(Namespace(target_dictionary=small_dictionary()), False, 0.1, "learned", "last")


def test_task_without_images_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    model = small_model()
    task = Task(model)
    task.image_feature_size = 0
    Criterion(task, False, 0.1, "learned", "last")
    assert caplog.text.count("without --image-features there is no modality loss") == 1


def test_half_precision_and_autocast_train(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = small_model(), sample()
    criterion = criterion_of(model)
    with torch.autocast("cpu", torch.bfloat16):
        loss = criterion(model, batch)[0]
    loss.backward()
    assert loss.isfinite() and all(p.grad.isfinite().all() for p in criterion.parameters())
    half = small_model().to(torch.bfloat16)
    found = criterion_of(half).to(torch.bfloat16)(half, batch)
    assert found[0].isfinite() and float(found[2]["modality_cosine"]) < 7.1
    assert D == 16
