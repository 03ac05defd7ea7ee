"""The matcher of VOK §3.2: worked by hand, a naive twin, what is padded, absent, frozen, and in which precision."""

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from visual_grounding.errors import InputError
from visual_grounding.modules import token_image_matcher as module
from visual_grounding.modules.token_image_matcher import (
    TRAINING_CHOICES,
    MatchingMLP,
    TokenImageMatcher,
    TokenImageMatcherConfig,
    matcher_config_of_state,
    mean_of_tokens,
)

PAD = 1
TOKENS = torch.tensor([[4, 5, 6, 7], [7, 8, PAD, PAD], [5, PAD, PAD, PAD]])  # (B, T)
ABSENT = TOKENS == PAD


class KnownStates(nn.Module):
    """An encoder of three layers, one number a token, whose states are known: the embedding's come first."""

    def __init__(self, *states: list[float]) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_size=1, num_hidden_layers=len(states) - 1)
        self.states = tuple(torch.tensor(layer).view(1, -1, 1) for layer in states)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, output_hidden_states: bool) -> SimpleNamespace:
        return SimpleNamespace(hidden_states=self.states if output_hidden_states else None)


def small_encoder(kind: str = "bert") -> Any:
    """Three layers of 8 numbers with dropout, and a pooler."""
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 8}
    shared = {"vocab_size": 12, "max_position_embeddings": 16, "pad_token_id": PAD, **sizes}
    if kind == "roberta":
        return transformers.RobertaModel(transformers.RobertaConfig(**shared))
    if kind == "distilbert":
        return transformers.DistilBertModel(
            transformers.DistilBertConfig(vocab_size=12, dim=8, n_layers=3, n_heads=2, hidden_dim=8, pad_token_id=PAD)
        )
    return transformers.BertModel(transformers.BertConfig(**shared))


def build(kind: str = "bert", **choices: Any) -> TokenImageMatcher:
    encoder = small_encoder(kind)
    sizes = {"layers": 2, "image_feature_size": 6, "joint_size": 4, "hidden_size": 5}
    return TokenImageMatcher(TokenImageMatcherConfig(**{**sizes, **choices}), encoder)


def images() -> tuple[Tensor, Tensor]:
    """Three images with up to 3 regions of 6 numbers; the last one is absent."""
    features = torch.randn(3, 3, 6, generator=torch.Generator().manual_seed(1))
    return features, torch.tensor([[False] * 3, [False, True, True], [True] * 3])


def naive_mlp(mlp: MatchingMLP, vector: Tensor) -> Tensor:
    inner = (mlp.hidden.weight @ vector + mlp.hidden.bias).clamp(min=0)
    vector = mlp.output.weight @ inner + mlp.output.bias
    return vector / vector.square().sum().sqrt()


def test_scores_agree_with_an_example_worked_by_hand() -> None:
    # Two tokens; the last two of three layers say (3, 4) of the first and (-1, 2) of the second. With identities for
    # both linear layers the first token is (3, 4) / 5, and the second, behind the ReLU, (0, 2) / 2.
    matcher = TokenImageMatcher(
        TokenImageMatcherConfig(layers=2, image_feature_size=2, joint_size=2, hidden_size=2),
        KnownStates([9.0, 9.0], [8.0, 8.0], [3.0, -1.0], [4.0, 2.0]),
    ).eval()
    for layer in (matcher.text.hidden, matcher.text.output, matcher.image.hidden, matcher.image.output):
        nn.init.eye_(layer.weight)
        nn.init.zeros_(layer.bias)
    # The image's regions (1, 0) and (5, 8) have the mean (3, 4), so (0.6, 0.8); the third one is absent.
    features, absent = torch.tensor([[[1.0, 0.0], [5.0, 8.0], [70.0, 7.0]]]), torch.tensor([[False, False, True]])
    tokens, image = matcher(torch.tensor([[4, 5]]), torch.zeros(1, 2, dtype=torch.bool), features, absent)
    torch.testing.assert_close(tokens, torch.tensor([[[0.6, 0.8], [0.0, 1.0]]]))
    torch.testing.assert_close(image, torch.tensor([[0.6, 0.8]]))
    torch.testing.assert_close(tokens @ image[0], torch.tensor([[1.0, 0.8]]))  # r(w_i, x; s)
    # The sentence: (0.6, 1.8) / 2, to unit length.
    torch.testing.assert_close(mean_of_tokens(tokens), torch.tensor([[0.1, 0.3]]) * 10**0.5)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
@pytest.mark.parametrize("layers", [1, 3])
def test_matcher_agrees_with_its_naive_twin(kind: str, layers: int) -> None:
    matcher = build(kind, layers=layers).eval()
    features, absent = images()
    tokens, vectors = matcher(TOKENS, ABSENT, features, absent)
    for sentence, row in enumerate(TOKENS):
        alone = row[row != PAD]
        states = matcher.encoder(input_ids=alone.unsqueeze(0), output_hidden_states=True).hidden_states
        for place in range(len(alone)):
            joined = torch.cat([states[1 + layer][0, place] for layer in range(3 - layers, 3)])
            expected = naive_mlp(matcher.text, joined)
            torch.testing.assert_close(tokens[sentence, place], expected, atol=1e-5, rtol=0)
    for image in (0, 1):
        mean = features[image][~absent[image]].mean(dim=0)
        torch.testing.assert_close(vectors[image], naive_mlp(matcher.image, mean))


def test_padded_token_and_absent_image_are_exactly_0_and_all_others_unit_vectors() -> None:
    matcher = build().eval()
    empty = torch.cat([TOKENS, torch.full((1, 4), PAD)])
    tokens = matcher.encode_tokens(empty, empty == PAD)
    assert tokens.dtype == torch.float32 and tokens.any(dim=2).tolist() == (empty != PAD).tolist()
    torch.testing.assert_close(tokens.norm(dim=2), (empty != PAD).float())
    torch.testing.assert_close(matcher.encode_images(*images()).norm(dim=1), torch.tensor([1.0, 1.0, 0.0]))
    for sentence_level in (False, True):
        text = build(sentence_level=sentence_level).eval().encode_text(empty, empty == PAD)
        torch.testing.assert_close(text.norm(dim=1), torch.tensor([1.0, 1.0, 1.0, 0.0]))


def test_more_padding_and_absent_regions_change_nothing() -> None:
    matcher = build().eval()
    wider = torch.cat([TOKENS, torch.full((3, 3), 9)], dim=1)  # even where padding isn't the padding piece
    mask = torch.cat([ABSENT, torch.ones(3, 3, dtype=torch.bool)], dim=1)
    for encode in (matcher.encode_tokens, matcher.encode_text):
        torch.testing.assert_close(encode(wider, mask)[:, :4], encode(TOKENS, ABSENT)[:, :4], atol=1e-5, rtol=0)
    features, absent = images()
    more = torch.cat([features, torch.full((3, 2, 6), 50.0)], dim=1)
    gone = torch.cat([absent, torch.ones(3, 2, dtype=torch.bool)], dim=1)
    torch.testing.assert_close(matcher.encode_images(more, gone), matcher.encode_images(features, absent))


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_much_padding_is_left_out_of_the_encoder_and_changes_nothing(kind: str, monkeypatch) -> None:
    """A sentence without a token among them, and one whose padding isn't the padding piece."""
    matcher = build(kind).eval()
    ends = torch.randint(0, 13, (40,), generator=torch.Generator().manual_seed(0)).clamp(max=12)
    ends[:2] = torch.tensor([0, 12])
    absent = torch.arange(12) >= ends[:, None]
    tokens = torch.randint(2, 12, (40, 12), generator=torch.Generator().manual_seed(1)).masked_fill(absent, PAD)
    tokens[2, int(ends[2]) :] = 9
    widths: list[int] = []
    whole = matcher.encoder.forward
    monkeypatch.setattr(
        matcher.encoder, "forward", lambda **given: widths.append(given["input_ids"].numel()) or whole(**given)
    )
    found = [encode(tokens, absent) for encode in (matcher.encode_tokens, matcher.encode_text)]
    assert len(widths) == 8 and sum(widths[:4]) < 0.75 * tokens.numel()
    monkeypatch.setattr(module, "_DENSE", 0.0)
    for grouped, encode in zip(found, (matcher.encode_tokens, matcher.encode_text)):
        torch.testing.assert_close(grouped, encode(tokens, absent), atol=1e-5, rtol=0)
    assert widths[8:] == [480, 480]


def test_sentence_level_is_the_vector_of_the_first_piece() -> None:
    of_tokens, of_sentences = build().eval(), build(sentence_level=True).eval()
    of_sentences.load_state_dict(of_tokens.state_dict())
    sentences, vectors = of_sentences(TOKENS, ABSENT, *images())
    torch.testing.assert_close(sentences, of_tokens.encode_tokens(TOKENS, ABSENT)[:, 0])
    assert sentences.shape == (3, 4) and torch.equal(vectors, of_tokens.encode_images(*images()))
    torch.testing.assert_close(
        of_tokens.encode_text(TOKENS, ABSENT)[1],
        nn.functional.normalize(of_tokens.encode_tokens(TOKENS, ABSENT)[1, :2].mean(dim=0), dim=0),
    )


@pytest.mark.parametrize("sentence_level", [False, True])
def test_kept_states_are_those_of_the_encoder_which_reads_each_text_once(sentence_level: bool, monkeypatch) -> None:
    matcher = build(sentence_level=sentence_level).eval()
    expected = matcher(TOKENS, ABSENT, *images())
    read = []
    states = matcher._states
    monkeypatch.setattr(matcher, "_states", lambda tokens, mask: read.append(tokens) or states(tokens, mask))
    matcher.keep_states(10**6)
    for _ in range(2):
        for found, wanted in zip(matcher(TOKENS, ABSENT, *images()), expected):
            torch.testing.assert_close(found, wanted)
    assert [len(each) for each in read] == [3]
    # In another order, with more padding and a new text among them: the new one alone is read, without padding.
    wider = torch.cat([TOKENS[[2, 0]], torch.tensor([[9, 4, PAD, PAD]])])
    padded = torch.cat([wider, torch.full((3, 2), PAD)], dim=1)
    matcher._kept, kept = None, matcher._kept
    expected = matcher.encode_text(padded, padded == PAD)
    matcher._kept = kept
    read.clear()
    torch.testing.assert_close(matcher.encode_text(padded, padded == PAD), expected)
    assert [each.tolist() for each in read] == [[[9, 4]]]
    nothing = torch.full((1, 3), PAD)
    assert not matcher.encode_text(nothing, nothing == PAD).any()


def test_states_beyond_the_memory_are_read_again(monkeypatch) -> None:
    matcher = build().eval()
    expected = matcher.encode_tokens(TOKENS, ABSENT)
    read = []
    states = matcher._states
    monkeypatch.setattr(matcher, "_states", lambda tokens, mask: read.append(len(tokens)) or states(tokens, mask))
    matcher.keep_states(4 * 16 * 4 + 3 * 16)  # the first text, and not quite a piece more
    for _ in range(3):
        torch.testing.assert_close(matcher.encode_tokens(TOKENS, ABSENT), expected)
    assert read == [3, 2, 2]


def test_of_sentences_their_first_pieces_are_kept(monkeypatch) -> None:
    matcher = build(sentence_level=True).eval()
    expected = matcher.encode_text(TOKENS, ABSENT)
    read = []
    states = matcher._states
    monkeypatch.setattr(matcher, "_states", lambda tokens, mask: read.append(len(tokens)) or states(tokens, mask))
    matcher.keep_states(3 * 4 * matcher.text.hidden.in_features)  # a piece of each
    for _ in range(2):
        torch.testing.assert_close(matcher.encode_text(TOKENS, ABSENT), expected)
    assert read == [3]


@pytest.mark.parametrize("sentence_level", [False, True])
def test_a_gradient_reaches_every_parameter_but_the_encoders(sentence_level: bool) -> None:
    matcher = build(sentence_level=sentence_level, dropout=0.0).train()
    empty = torch.cat([TOKENS[:2], torch.full((1, 4), PAD)])  # the last sentence has no token
    text, vectors = matcher(empty, empty == PAD, *images())
    ((text * torch.randn_like(text)).sum() + (vectors * torch.randn_like(vectors)).sum()).backward()
    learned = {name for name, weight in matcher.named_parameters() if not name.startswith("encoder.")}
    assert (
        len(learned) == 8 and {name for name, weight in matcher.named_parameters() if weight.requires_grad} == learned
    )
    for name in learned:
        gradient = matcher.get_parameter(name).grad
        assert gradient is not None and gradient.isfinite().all() and gradient.any(), name


def test_encoder_is_frozen_without_pooler_dropout_or_graph() -> None:
    matcher = build(dropout=0.0)
    assert matcher.train().training and matcher.text.training and not matcher.encoder.training
    assert matcher.encoder.pooler is None and not matcher.hidden_states(TOKENS, ABSENT).requires_grad
    torch.testing.assert_close(matcher(TOKENS, ABSENT, *images())[0], matcher.eval()(TOKENS, ABSENT, *images())[0])
    with torch.no_grad():
        assert not any(vectors.requires_grad for vectors in matcher(TOKENS, ABSENT, *images()))


def test_dropout_is_for_training_alone() -> None:
    matcher = build(dropout=0.5, hidden_size=64)
    torch.manual_seed(0)
    first, second = (matcher.train()(TOKENS, ABSENT, *images()) for _ in range(2))
    assert not torch.equal(first[0], second[0]) and not torch.equal(first[1], second[1])
    first, second = (matcher.eval()(TOKENS, ABSENT, *images()) for _ in range(2))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])


def test_mlps_compute_in_float32_under_autocast_and_in_half_precision() -> None:
    mlp = MatchingMLP(24, 16, 8, dropout=0.0)
    vectors = torch.randn(7, 24, generator=torch.Generator().manual_seed(0))
    exact = mlp(vectors)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(mlp(vectors), exact)
    rounded = MatchingMLP(24, 16, 8, dropout=0.0)
    rounded.load_state_dict({name: weight.bfloat16().float() for name, weight in mlp.state_dict().items()})
    expected = rounded(vectors.bfloat16().float())
    found = mlp.bfloat16()(vectors.bfloat16())
    assert found.dtype == torch.float32 and torch.equal(found, expected)


@pytest.mark.parametrize("layers", [0, 4])
def test_more_layers_than_the_encoder_has_are_refused(layers: int) -> None:
    with pytest.raises(InputError, match=rf"matcher layers should be 1 to 3, as many as .* has, but are {layers}\."):
        build(layers=layers)


def test_configuration_of_trained_weights() -> None:
    matcher = build(sentence_level=True, dropout=0.1)
    described = asdict(matcher.config)
    choices = {flag: described[name] for name, flag in TRAINING_CHOICES.items()}
    assert matcher_config_of_state(matcher.state_dict(), choices) == matcher.config
