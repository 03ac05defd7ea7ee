"""What every model with images gets from one place; one that reads text and regions as one stream stands on it, too."""

import inspect
import pkgutil
from argparse import Namespace
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import pytest
import torch
from fairseq.checkpoint_utils import prune_state_dict
from fairseq.models import FairseqEncoder, FairseqEncoderDecoderModel
from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase
from small_models import ARCHITECTURES, SIZE, Task, build
from torch import Tensor, nn

from visual_grounding import InputError
from visual_grounding import models as package
from visual_grounding.models import visual_model
from visual_grounding.models.visual_model import (
    StrictLoading,
    check_checkpoint_fits,
    check_numbers,
    features_of,
    take_feature_size,
)


def number_flags() -> set[str]:
    """Fields of whole numbers of all dataclasses of this package's models."""
    found = set()
    for module in pkgutil.iter_modules(package.__path__):
        for each in vars(import_module(f"{package.__name__}.{module.name}")).values():
            if isinstance(each, type) and is_dataclass(each) and each.__module__.startswith(package.__name__):
                own = inspect.get_annotations(each)  # not what it has from fairseq's
                found |= {field.name for field in fields(each) if field.type in (int, int | None) and field.name in own}
    return found


def test_every_size_that_a_model_may_be_given_has_bounds():
    assert number_flags() == visual_model._SIZES.keys() and len(number_flags()) > 12


@pytest.mark.parametrize("name", visual_model._SIZES)
def test_sizes_beyond_any_model_are_refused(name: str) -> None:
    least, most = visual_model._SIZES[name]
    for value in (None, least, most):
        check_numbers(Namespace(**{name: value}))
    for value in (least - 1, most + 1, 10**30):
        with pytest.raises(InputError, match=f"--{name.replace('_', '-')} should be {least} to {most}, but is "):
            check_numbers(Namespace(**{name: value}))


class OneStreamEncoder(FairseqEncoder):
    """Words and projected regions through one layer of self-attention."""

    def __init__(self, dictionary: Any, feature_size: int) -> None:
        super().__init__(dictionary)
        self.words = nn.Embedding(len(dictionary), 16, dictionary.pad())
        self.image_projection = nn.Linear(feature_size, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 16, dropout=0.0)

    def forward(
        self, src_tokens: Tensor, src_lengths: Tensor, visual: dict[str, Tensor] | None = None
    ) -> dict[str, list[Tensor]]:
        """src_tokens (B, T), visual as everywhere -> encoder_out (T + M, B, D), text first."""
        stream = self.words(src_tokens).transpose(0, 1)  # (T, B, D)
        mask = src_tokens == self.dictionary.pad()  # (B, T)
        found = features_of(visual, self.image_projection.in_features)
        if found is not None:
            regions = self.image_projection(found[0].flatten(1, 2)).transpose(0, 1)  # (M, B, D)
            stream, mask = torch.cat([stream, regions]), torch.cat([mask, found[1].flatten(1)], 1)
        encoded = self.layer(stream, src_key_padding_mask=mask)
        return {"encoder_out": [encoded], "encoder_padding_mask": [mask], "encoder_states": []}


class OneStreamModel(StrictLoading, FairseqEncoderDecoderModel):
    """Its decoder is fairseq's own."""

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "OneStreamModel":
        take_feature_size(args, task, twin="text_only_stream")
        torch.manual_seed(1)
        flags = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in (
            ("embed_dim", 16), ("ffn_embed_dim", 16), ("attention_heads", 2), ("layers", args.layers))}  # fmt: skip
        cfg = TransformerConfig.from_namespace(Namespace(**flags))
        words = nn.Embedding(len(task.target_dictionary), 16, task.target_dictionary.pad())
        decoder = TransformerDecoderBase(cfg, task.target_dictionary, words)
        return cls(OneStreamEncoder(task.source_dictionary, args.visual_feature_size), decoder)

    def forward(self, src_tokens: Tensor, src_lengths: Tensor, prev_output_tokens: Tensor, visual: Any = None) -> Any:
        return self.decoder(prev_output_tokens, encoder_out=self.encoder(src_tokens, src_lengths, visual=visual))


def one_stream(task: Task | None = None, layers: int = 1, **flags: object) -> OneStreamModel:
    args = Namespace(arch="one_stream", layers=layers, **flags)
    return OneStreamModel.build_model(args, task or Task())


def batch() -> dict[str, Any]:
    return {
        "src_tokens": torch.tensor([[4, 5, 6, 2], [7, 8, 2, 1]]),
        "src_lengths": torch.tensor([4, 3]),
        "prev_output_tokens": torch.tensor([[2, 4, 5], [2, 6, 1]]),
        "visual": {
            "features": torch.randn(2, 3, 2, SIZE, generator=torch.Generator().manual_seed(5)),
            "padding_mask": torch.zeros(2, 3, 2, dtype=torch.bool),
        },
    }


def models() -> list[nn.Module]:
    return [*(build(arch).eval() for arch in ARCHITECTURES), one_stream().eval()]


def test_every_model_sees_its_images_and_does_without_them() -> None:
    for model in models():
        inputs = batch()
        seeing = model(**inputs)[0]
        blind = model(**{**inputs, "visual": None})[0]
        assert seeing.shape == blind.shape == (2, 3, 12)
        assert not torch.allclose(seeing, blind)
        inputs["visual"]["padding_mask"][1] = True
        torch.testing.assert_close(model(**inputs)[0][1], blind[1])
        torch.testing.assert_close(model(**inputs)[0][0], seeing[0])


def test_encoders_output_begins_with_the_text_and_follows_beam_search() -> None:
    for model in models():
        inputs = batch()
        del inputs["prev_output_tokens"]
        encoded = model.encoder(**inputs)
        mask = encoded["encoder_padding_mask"][0]
        assert encoded["encoder_out"][0].shape[:2] == mask.T.shape
        assert torch.equal(mask[:, :4], inputs["src_tokens"] == 1)
    order = torch.tensor([1, 0, 0])
    model = build("visual_aware_transformer").eval()
    reordered = model.encoder.reorder_encoder_out(model.encoder(**inputs), order)
    torch.testing.assert_close(reordered["encoder_out"][0], model.encoder(**inputs)["encoder_out"][0][:, order])


def test_feature_size_comes_from_the_store_or_the_checkpoint(caplog: pytest.LogCaptureFixture) -> None:
    args = Namespace(arch="any")
    take_feature_size(args, Task(7), "twin")
    assert args.visual_feature_size == 7 and not caplog.text
    take_feature_size(args, Task(0), "twin")
    assert args.visual_feature_size == 7
    assert caplog.text.count("without --image-features it has none: text alone must do") == 1


def test_feature_size_that_is_not_known_or_another_is_refused() -> None:
    with pytest.raises(InputError, match=r"^--arch any needs images.*text-only twin use --arch plain_tiny\.$"):
        take_feature_size(Namespace(arch="any"), Task(0), "plain_tiny")
    with pytest.raises(InputError, match=r"^the model needs images"):
        take_feature_size(Namespace(), Task(0), "plain")
    with pytest.raises(InputError, match=r"image features of size 9, but features/some has size 7\. Use the feature"):
        take_feature_size(Namespace(arch="any", visual_feature_size=9), Task(7), "plain")
    with pytest.raises(InputError, match=r"trained on image features of size 5, but these have 6\. Use the feature"):
        features_of(batch()["visual"], 5)


def test_weights_that_do_not_fit_are_named_by_every_model() -> None:
    for make in (one_stream, lambda task=None: build("text_only_transformer", task), *(
        lambda task=None, arch=arch: build(arch, task) for arch in ARCHITECTURES
    )):  # fmt: skip
        model = make()
        state = {**model.state_dict(), "stranger": torch.zeros(1)}
        del state["decoder.embed_tokens.weight"]
        with pytest.raises(
            InputError,
            match=r"the checkpoint should hold the \d+ weights of this model, but has 1 missing "
            r"\(decoder\.embed_tokens\.weight\), 1 superfluous \(stranger\)\. It was made with other model flags, for",
        ):
            model.load_state_dict(state)
        model.load_state_dict(state, strict=False)
    state = one_stream(Task(9)).state_dict()
    with pytest.raises(InputError, match=r"another shape \(encoder.image_projection.weight is \(16, 9\), not"):
        one_stream().load_state_dict(state)


def test_checkpoint_of_other_languages_is_refused_by_their_names() -> None:
    class Spoken(torch.nn.Module):
        def __init__(self, *languages: str) -> None:
            super().__init__()
            for side, language in zip(("encoder", "decoder"), languages):
                setattr(self, side, torch.nn.ParameterDict({f"language_{language}": torch.zeros(2)}))

    own = Spoken("en", "de")
    check_checkpoint_fits(own, Spoken("en", "de").state_dict())
    for others, said in ((("en", "fr"), "en, fr"), (("de", "en"), "de, en")):
        with pytest.raises(InputError, match=rf"was trained for \({said}\), but is used for en, de\."):
            check_checkpoint_fits(own, Spoken(*others).state_dict())


@pytest.mark.parametrize("arch", ["visual_aware_transformer", "text_only_transformer"])
def test_layers_are_taken_out_at_loading_as_fairseq_does(arch: str) -> None:
    """`--encoder-layers-to-keep` of a model that was trained with LayerDrop."""
    whole = build(arch, encoder_layers=3, decoder_layers=2)
    keep = {"encoder_layers_to_keep": "0,2", "decoder_layers_to_keep": "1"}
    smaller = build(arch, encoder_layers=3, decoder_layers=2, **keep)
    assert (len(smaller.encoder.layers), len(smaller.decoder.layers)) == (2, 1)
    smaller.load_state_dict(whole.state_dict(), model_cfg=Namespace(arch=arch, **keep))
    state = smaller.state_dict()
    expected = prune_state_dict(whole.state_dict(), Namespace(arch=arch, **keep))
    assert state.keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in state.items())
    kept = whole.encoder.layers[2].fc1.weight
    assert torch.equal(smaller.encoder.layers[1].fc1.weight, kept)
    with pytest.raises(InputError, match=r"superfluous \(encoder\.layers\.2"):  # without them, as before
        build(arch, encoder_layers=2, decoder_layers=2).load_state_dict(whole.state_dict())
    with pytest.raises(InputError, match=r"16 missing \(encoder\.layers\.1"):
        build(arch, encoder_layers=2, decoder_layers=2).load_state_dict(
            whole.state_dict(), model_cfg=Namespace(arch=arch, encoder_layers_to_keep="0", decoder_layers_to_keep="0,1")
        )


def test_nothing_of_the_check_is_left_behind() -> None:
    model = build("visual_aware_transformer")
    with pytest.raises(InputError):
        model.load_state_dict({})
    nn.Module.load_state_dict(model, {}, strict=False)
