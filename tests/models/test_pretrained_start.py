"""A start from pre-trained weights: all of them or an error, and a line of the log that says what became of each."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import write_store
from omegaconf import OmegaConf
from torch import nn

from visual_grounding import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.models.pretrained_start import pretrained_of, read_pretrained, start_from
from visual_grounding.text.words import digest_of_symbols

KINDS = ("visual_aware_transformer",)


class Layer(nn.Module):
    """Attention to itself, on the decoder's side also to the encoder."""

    def __init__(self, crossing: bool) -> None:
        super().__init__()
        self.self_attn = nn.Linear(3, 3)
        if crossing:
            self.encoder_attn = nn.Linear(3, 3)


class Side(nn.Module):
    """An embedding and two layers."""

    def __init__(self, crossing: bool) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(5, 3)
        self.layers = nn.ModuleList(Layer(crossing) for _ in range(2))
        self.register_buffer("version", torch.tensor([3.0]))


class Translation(nn.Module):
    """Both sides; the output layer is the decoder's embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = Side(False), Side(True)
        self.encoder.image_embedding = nn.Linear(2, 3)
        self.decoder.output_projection = nn.Linear(3, 5, bias=False)
        self.decoder.output_projection.weight = self.decoder.embed_tokens.weight


def weights() -> dict[str, torch.Tensor]:
    """Of a pre-trained encoder with a head."""
    torch.manual_seed(5)
    stream = Side(False)
    stream.image_embedding, stream.label_head = nn.Linear(2, 3), nn.Linear(3, 7)
    return stream.state_dict(prefix="encoder.")


def sources() -> dict[str, str]:
    """Decoder from encoder, cross-attention from self-attention."""
    model = Translation()
    names = [name for name, _ in model.named_parameters()]
    return {
        name: name.replace("decoder.", "encoder.").replace("encoder_attn", "self_attn") for name in names
    }  # fmt: skip


def checkpoint(folder: Path, **changes: Any) -> Path:
    """As fairseq writes it."""
    state = {
        "cfg": {
            "model": Namespace(arch="visual_aware_transformer_tiny", _name="visual_aware_transformer_tiny", size=3)
        },
        "model": weights(),
        "task_state": {"dictionaries": {"source": digest_of_symbols("abc")}, "image_features": None},
    }
    torch.save({**state, **changes}, folder / "pretrained.pt")
    return folder / "pretrained.pt"


def test_start_copies_every_weight_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    model, pretrained = Translation(), read_pretrained(checkpoint(tmp_path), KINDS)
    start_from(model, sources(), pretrained, left_out=["encoder.label_head.*"])
    own, theirs = dict(model.named_parameters()), weights()
    assert len(own) == len(sources())
    assert all(torch.equal(own[name], theirs[source]) for name, source in sources().items())
    assert torch.equal(model.decoder.layers[1].encoder_attn.weight, theirs["encoder.layers.1.self_attn.weight"])
    assert model.decoder.output_projection.weight is model.decoder.embed_tokens.weight
    (line,) = (record.getMessage() for record in caplog.records if "started from" in record.getMessage())
    assert line.endswith(
        "pretrained.pt (--arch visual_aware_transformer_tiny): copied 16 weights (7 of encoder from encoder, 5 of "
        "decoder from encoder, 4 of decoder.layers.*.encoder_attn from encoder.layers.*.self_attn); started anew: "
        "nothing; left out: 2 (encoder.label_head.weight, encoder.label_head.bias)"
    )


def test_start_leaves_fresh_weights_as_they_were(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    model = Translation()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    kept = {name: source for name, source in sources().items() if "encoder_attn" not in name}
    start_from(
        model, kept, read_pretrained(checkpoint(tmp_path), KINDS), ["*.label_head.*"], ["decoder.*.encoder_attn.*"]
    )
    changed = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    assert changed == set(kept)
    said = "started anew: 4 (decoder.layers.*.encoder_attn.weight, decoder.layers.*.encoder_attn.bias); left out"
    assert said in caplog.text


def test_start_refuses_weights_that_nobody_spoke_of(tmp_path: Path) -> None:
    pretrained = read_pretrained(checkpoint(tmp_path), KINDS)
    before = Translation()
    state = {name: weight.clone() for name, weight in before.state_dict().items()}
    with pytest.raises(
        InputError,
        match=r"pretrained\.pt \(--arch visual_aware_transformer_tiny\) should have the weights that this model starts "
        r"from, but has no place in this model for 2 \(encoder\.label_head\.bias, encoder\.label_head\.weight\)\. Give",
    ):
        start_from(before, sources(), pretrained)
    kept = {name: source for name, source in sources().items() if name != "decoder.layers.0.encoder_attn.bias"}
    with pytest.raises(InputError, match=r"has nothing for 1 \(decoder\.layers\.0\.encoder_attn\.bias\)\. Give"):
        start_from(before, kept, pretrained, ["*.label_head.*"], ["*.image_embedding.*"])
    with pytest.raises(ValueError, match=r"the model has no weights encoder\.layer\.0$"):
        start_from(before, {**sources(), "encoder.layer.0": "encoder.embed_tokens.weight"}, pretrained)
    assert all(torch.equal(weight, state[name]) for name, weight in before.state_dict().items())  # all or nothing


def test_start_refuses_weights_that_are_missing_or_of_another_size(tmp_path: Path) -> None:
    theirs = weights()
    del theirs["encoder.image_embedding.bias"]
    theirs["encoder.embed_tokens.weight"] = torch.zeros(6, 3)
    pretrained = read_pretrained(checkpoint(tmp_path, model=theirs), KINDS)
    with pytest.raises(
        InputError,
        match=r"but lacks 1 \(encoder\.image_embedding\.bias\), and has in another shape 2 \(encoder\.embed_tokens\."
        r"weight \(6, 3\) for encoder\.embed_tokens\.weight \(5, 3\), encoder\.embed_tokens\.weight \(6, 3\) for dec",
    ):
        start_from(Translation(), sources(), pretrained, ["*.label_head.*"])


def test_read_refuses_what_is_no_checkpoint_of_such_a_model(tmp_path: Path) -> None:
    either = r"should be of --arch vtlm or --arch vlp_bert"
    with pytest.raises(InputError, match=rf"^the pre-trained checkpoint {either}, but .*gone\.pt doesn't exist\.$"):
        read_pretrained(tmp_path / "gone.pt", ("vtlm", "vlp_bert"))
    with pytest.raises(InputError, match=f"{either}, but {tmp_path} isn't a file"):
        read_pretrained(tmp_path, ("vtlm", "vlp_bert"))
    with pytest.raises(InputError, match=rf"{either}, but .*pretrained\.pt is of --arch visual_aware_transformer_tiny"):
        read_pretrained(checkpoint(tmp_path), ("vtlm", "vlp_bert"))
    with pytest.raises(InputError, match=rf"{either}, but .*pretrained\.pt doesn't say what it is of"):
        read_pretrained(checkpoint(tmp_path, cfg=None), ("vtlm", "vlp_bert"))
    (tmp_path / "pretrained.pt").write_bytes(b"half of it")
    with pytest.raises(InputError, match=r"pretrained\.pt should be a fairseq checkpoint, but is truncated"):
        read_pretrained(tmp_path / "pretrained.pt", KINDS)
    with pytest.raises(InputError, match="should be a fairseq checkpoint with weights under 'model', but holds"):
        read_pretrained(checkpoint(tmp_path, model={}), KINDS)


@pytest.mark.parametrize("hydra", [False, True])
def test_read_knows_flags_and_task(tmp_path: Path, hydra: bool) -> None:
    choices: Any = {"_name": "visual_aware_transformer_tiny", "size": 3}
    model = OmegaConf.create(choices) if hydra else Namespace(arch="visual_aware_transformer_tiny", **choices)
    pretrained = read_pretrained(checkpoint(tmp_path, cfg={"model": model}), KINDS)
    assert (pretrained.arch, pretrained.args.size) == ("visual_aware_transformer_tiny", 3)
    assert set(pretrained.weights) == set(weights())


def test_other_words_are_refused(tmp_path: Path) -> None:
    pretrained = read_pretrained(checkpoint(tmp_path), KINDS)
    pretrained.check_words("source", "abc", "dict.en.txt")
    pretrained.check_words("never remembered", "xyz", "dict.en.txt")
    with pytest.raises(
        InputError, match=r"^dict\.en\.txt should have the words that .*pretrained\.pt was trained with"
    ):
        pretrained.check_words("source", "acb", "dict.en.txt")


def test_other_features_are_refused(tmp_path: Path) -> None:
    store = FeatureStore(write_store(tmp_path / "store", np.ones((2, 1, 3))))
    task = Namespace(image_store=store, cfg=Namespace(image_features_unchecked=False))
    alike = read_pretrained(checkpoint(tmp_path, task_state={"image_features": store.signature}), KINDS)
    alike.check_features(task)
    other = read_pretrained(checkpoint(tmp_path, task_state={"image_features": "backbone:another"}), KINDS)
    with pytest.raises(InputError, match="backbone:another"):
        other.check_features(task)
    other.check_features(Namespace(image_store=store, cfg=Namespace(image_features_unchecked=True)))
    other.check_features(Namespace(image_store=None, cfg=Namespace()))
    read_pretrained(checkpoint(tmp_path), KINDS).check_features(task)  # pre-trained without images


def test_a_task_learns_with_how_many_images_was_pretrained(tmp_path: Path) -> None:
    task = Namespace(image_store=None, cfg=Namespace(), images=Namespace(trained_with=[]))
    read_pretrained(checkpoint(tmp_path, task_state={"images_per_sentence": 3}), KINDS).check_features(task)
    read_pretrained(checkpoint(tmp_path), KINDS).check_features(task)
    assert task.images.trained_with == [3]


def training(folder: Path, **flags: Any) -> Namespace:
    """A task as far as it knows where fairseq's checkpoints are."""
    choices = {"save_dir": str(folder / "run"), "restore_file": "checkpoint_last.pt", "continue_once": None}
    return Namespace(cfg=Namespace(**{**choices, "finetune_from_model": None, "checkpoint_suffix": "", **flags}))


def test_flag_is_read_at_the_first_start_and_forgotten(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    args = Namespace(visual_pretrained=str(path))
    found = pretrained_of(args, training(tmp_path), KINDS)
    assert found is not None and found.path == path
    assert args.visual_pretrained is None  # what a checkpoint keeps: so generation never asks for the file
    assert pretrained_of(args, training(tmp_path), KINDS) is None
    assert pretrained_of(Namespace(), training(tmp_path), KINDS) is None
    assert pretrained_of(OmegaConf.create({"visual_pretrained": str(path)}), Namespace(cfg=None), KINDS) is not None


def test_flag_opens_nothing_where_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    (tmp_path / "run").mkdir()
    for name in ("run/checkpoint_last.pt", "stage1.pt"):
        (tmp_path / name).touch()
    for flags in ({}, {"restore_file": str(tmp_path / "stage1.pt")}):
        args = Namespace(visual_pretrained="gone.pt")
        assert pretrained_of(args, training(tmp_path, **flags), KINDS) is None and args.visual_pretrained is None
    (tmp_path / "run/checkpoint_last.pt").unlink()
    args = Namespace(visual_pretrained="gone.pt")
    assert pretrained_of(args, training(tmp_path, finetune_from_model=str(tmp_path / "stage1.pt")), KINDS) is None
    assert caplog.text.count("gone.pt isn't read: the weights are those of") == 3
    with pytest.raises(InputError, match=r"gone\.pt doesn't exist"):
        pretrained_of(Namespace(visual_pretrained="gone.pt"), training(tmp_path), KINDS)
