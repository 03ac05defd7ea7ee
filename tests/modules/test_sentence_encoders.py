"""From tokens to one vector: against naive loops, with more padding, without a token, frozen and remembered."""

from typing import Any

import pytest
import torch

from visual_grounding.errors import InputError
from visual_grounding.modules.sentence_encoders import (
    BagSentenceEncoder,
    PretrainedSentenceEncoder,
    SRUSentenceEncoder,
    build_pretrained_encoder,
    embed_words,
    load_pretrained_encoder,
    load_text_encoder,
    masked_mean,
)
from visual_grounding.text.tokenizer_bridge import TokenizerBridge
from visual_grounding.text.words import PAD

TOKENS = torch.tensor([[4, 5, 6], [7, PAD, PAD], [5, 4, PAD]])  # (B, T)
ABSENT = TOKENS == PAD


def tiny_bert() -> Any:
    """A random BERT with its pooler, without dropout, so that training and evaluation give the same."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertModel(BertConfig(vocab_size=12, max_position_embeddings=16, **sizes, **quiet))


@pytest.fixture(params=["sru", "bag", "frozen", "trained"])
def encoder(request: pytest.FixtureRequest) -> torch.nn.Module:
    torch.manual_seed(0)
    if request.param == "sru":
        return SRUSentenceEncoder(vocabulary_size=9, embed_size=3, output_size=5, layers=2, dropout=0.0)
    if request.param == "bag":
        return BagSentenceEncoder(vocabulary_size=9, embed_size=3)
    return PretrainedSentenceEncoder(tiny_bert(), freeze=request.param == "frozen")


def test_masked_mean_by_hand():
    # The mean of (1, 2) and (3, 4) is (2, 3); 9 stands in the padding; nothing has the mean 0.
    vectors = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]], [[9.0, 9.0]] * 3])
    absent = torch.tensor([[False, False, True], [True, True, True]])
    assert masked_mean(vectors, absent).tolist() == [[2.0, 3.0], [0.0, 0.0]]


def test_word_vectors_begin_with_the_variance_of_their_size_and_none_for_padding():
    torch.manual_seed(0)
    embedding = embed_words(4000, 16)
    assert embedding.weight[PAD].tolist() == [0.0] * 16 and embedding.padding_idx == PAD
    assert embedding.weight.var().item() == pytest.approx(1 / 16, rel=0.02)
    assert embedding.weight.abs().max().item() <= (3 / 16) ** 0.5


def test_sentence_vector_is_that_of_the_sentence_alone(encoder):
    together = encoder(TOKENS, ABSENT)
    assert together.shape == (3, encoder.output_size)
    for row, (tokens, absent) in enumerate(zip(TOKENS, ABSENT)):
        alone = tokens[~absent].unsqueeze(0)  # (1, T)
        torch.testing.assert_close(together[row], encoder(alone, torch.zeros_like(alone, dtype=torch.bool))[0])


def test_more_padding_changes_nothing(encoder):
    wider = torch.cat([TOKENS, torch.full((3, 4), PAD)], dim=1)
    torch.testing.assert_close(encoder(wider, wider == PAD), encoder(TOKENS, ABSENT))


def test_another_token_anywhere_in_the_sentence_changes_its_vector_alone(encoder):
    before = encoder(TOKENS, ABSENT)
    changed = TOKENS.clone()
    changed[0, 0] = 8
    after = encoder(changed, ABSENT)
    assert (after[0] - before[0]).abs().max() > 1e-4
    torch.testing.assert_close(after[1:], before[1:])


def test_sru_answers_with_its_output_at_the_last_real_word():
    torch.manual_seed(0)
    encoder = SRUSentenceEncoder(vocabulary_size=9, embed_size=3, output_size=5, layers=2, dropout=0.0)
    hidden = encoder.sru(encoder.embedding(TOKENS).transpose(0, 1))  # (T, B, D)
    expected = torch.stack([hidden[2, 0], hidden[0, 1], hidden[1, 2]])
    torch.testing.assert_close(encoder(TOKENS, ABSENT), expected)
    nothing = torch.full((1, 2), PAD)
    assert encoder(nothing, nothing == PAD).shape == (1, 5)  # a sentence without a word: no index before the first


def test_bag_is_the_mean_of_its_words_whatever_their_order():
    encoder = BagSentenceEncoder(vocabulary_size=9, embed_size=3)
    expected = torch.stack(
        [torch.stack([encoder.embedding.weight[word] for word in row[row != PAD]]).mean(dim=0) for row in TOKENS]
    )
    torch.testing.assert_close(encoder(TOKENS, ABSENT), expected)
    torch.testing.assert_close(encoder(TOKENS[:1].flip(1), ABSENT[:1]), expected[:1])


def test_pretrained_is_the_mean_of_the_last_layer_without_its_pooler():
    model = tiny_bert().eval()
    with torch.no_grad():
        expected = torch.stack(
            [model(input_ids=row[row != PAD].unsqueeze(0)).last_hidden_state[0].mean(dim=0) for row in TOKENS]
        )
    encoder = PretrainedSentenceEncoder(model, freeze=False)
    assert model.pooler is None and encoder.output_size == 8
    torch.testing.assert_close(encoder(TOKENS, ABSENT), expected)


def test_a_gradient_reaches_every_parameter_but_those_of_a_frozen_model(encoder):
    frozen = isinstance(encoder, PretrainedSentenceEncoder) and encoder.freeze
    vectors = encoder(TOKENS, ABSENT)
    assert vectors.requires_grad != frozen
    if frozen:
        assert not any(parameter.requires_grad for parameter in encoder.parameters())
        return
    (vectors**2).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())


def test_frozen_model_stays_in_evaluation_mode():
    for freeze in (True, False):
        encoder = PretrainedSentenceEncoder(tiny_bert(), freeze).train()
        assert encoder.training and encoder.model.training != freeze
    assert not encoder.eval().model.training


def test_frozen_model_encodes_each_sentence_once():
    encoder = PretrainedSentenceEncoder(tiny_bert(), freeze=True)
    expected = encoder(TOKENS, ABSENT)
    encoder.remember_sentences(2)
    rows: list[int] = []
    encode = encoder._encode
    encoder._encode = lambda tokens, mask: rows.append(len(tokens)) or encode(tokens, mask)
    for seen in ([3], [1], [1]):  # the first two are remembered, the third is encoded anew
        rows.clear()
        torch.testing.assert_close(encoder(TOKENS, ABSENT), expected)
        assert rows == seen
    wider = torch.cat([TOKENS, torch.full((3, 2), PAD)], dim=1)  # the same sentences, padded otherwise
    rows.clear()
    torch.testing.assert_close(encoder(wider, wider == PAD), expected)
    assert rows == [1]
    rows.clear()
    torch.testing.assert_close(encoder(TOKENS[[1, 0, 1]], ABSENT[[1, 0, 1]]), expected[[1, 0, 1]])
    assert not rows


def test_only_a_frozen_model_remembers_sentences():
    with pytest.raises(ValueError, match="only a frozen encoder may remember its sentences"):
        PretrainedSentenceEncoder(tiny_bert(), freeze=False).remember_sentences(2)


def test_folder_gives_the_model_with_its_weights_or_only_its_shape(tmp_path):
    model = tiny_bert()
    model.half().save_pretrained(tmp_path)
    loaded, built = load_pretrained_encoder(str(tmp_path)), build_pretrained_encoder(str(tmp_path))
    name = "embeddings.word_embeddings.weight"
    assert {weight.dtype for weight in loaded.parameters()} == {torch.float32}
    assert loaded.config._attn_implementation == built.config._attn_implementation == "sdpa"  # torch's fused attention
    torch.testing.assert_close(loaded.state_dict()[name], model.state_dict()[name].float())
    assert {n: w.shape for n, w in built.state_dict().items()} == {n: w.shape for n, w in loaded.state_dict().items()}
    assert not torch.equal(built.state_dict()[name], loaded.state_dict()[name])


def test_a_model_with_a_decoder_is_refused(tmp_path):
    from transformers import T5Config, T5Model

    T5Model(T5Config(vocab_size=9, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=f"{tmp_path} should be an encoder alone, .* has a decoder, too"):
        load_pretrained_encoder(str(tmp_path))


@pytest.mark.parametrize("kind", ["CLIP", "ViT", "Lxmert"])
def test_a_model_that_reads_more_than_text_is_refused(tmp_path, kind):
    import transformers

    text = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 9}
    image = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    choices = {
        "CLIP": {"text_config": text, "vision_config": {**image, "image_size": 8, "patch_size": 4}},
        "ViT": {**image, "image_size": 8, "patch_size": 4},
        "Lxmert": {name: size for name, size in text.items() if name != "num_hidden_layers"},
    }
    config = getattr(transformers, f"{kind}Config")(**choices[kind])
    getattr(transformers, f"{kind}Model")(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=rf"{tmp_path} should be an encoder of text alone, .* kind '{kind.lower()}'"):
        load_pretrained_encoder(str(tmp_path))


def test_a_text_encoder_without_its_tokenizer_is_refused(tmp_path):
    """transformers makes an empty one, to which every word is unknown."""
    tiny_bert().save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"should have a tokenizer of the \d+ pieces that its model embeds, but"):
        load_text_encoder(str(tmp_path))
    with pytest.raises(InputError, match=r"should have pieces of text, but has 5 special ones alone: .* Copy tok"):
        TokenizerBridge(str(tmp_path))


@pytest.mark.parametrize("load", [load_pretrained_encoder, build_pretrained_encoder])
def test_what_is_no_model_is_refused(tmp_path, load):
    (tmp_path / "empty").mkdir()
    message = rf"text encoder '{tmp_path}/empty' should be `sru`, `bag`, a folder with a pretrained model, or a model's"
    with pytest.raises(InputError, match=message):
        load(str(tmp_path / "empty"))
