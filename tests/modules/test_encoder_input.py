"""A pretrained encoder's own input and outputs from fairseq's batches, in either numbering, for each family."""

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import data_utils
from small_tokenizers import SENTENCES, make_tokenizer

from visual_grounding.data.pretrained_pieces import dictionary_of
from visual_grounding.errors import InputError
from visual_grounding.modules.encoder_input import EncoderInput
from visual_grounding.text.tokenizer_bridge import EOS, TokenizerBridge
from visual_grounding.text.words import PAD

TEXTS = [*SENTENCES, ""]
SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}


def make_encoder(family: str, embedded: int) -> Any:
    """A random encoder of that tokenizer's family, in evaluation mode; more rows than pieces."""
    import transformers

    torch.manual_seed(0)
    sizes = {**SIZES, "vocab_size": embedded, "max_position_embeddings": 80}
    if family == "wordpiece":
        model = transformers.BertModel(transformers.BertConfig(**sizes))
    elif family == "albert":
        model = transformers.AlbertModel(transformers.AlbertConfig(**sizes, embedding_size=4))
    elif family == "gpt2":
        small = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 80}
        model = transformers.GPT2Model(transformers.GPT2Config(vocab_size=embedded, **small))
    elif family == "t5":
        small = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2}
        model = transformers.T5EncoderModel(transformers.T5Config(vocab_size=embedded, **small))
    else:
        model = transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**sizes, type_vocab_size=1))
    with torch.no_grad():  # rows of padding start at 0, and would hide a mistake
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model.eval()


@pytest.fixture(scope="module", params=["wordpiece", "bytes", "unigram", "albert", "t5", "gpt2"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[TokenizerBridge, Any]:
    bridge = TokenizerBridge(str(make_tokenizer(tmp_path_factory.mktemp("tokenizers") / request.param, request.param)))
    return bridge, make_encoder(request.param, int(bridge.tokenizer_ids.max()) + 3)


def batch_of(bridge: TokenizerBridge, left: bool) -> torch.Tensor:
    """(B, T) as fairseq collates what `fairseq-preprocess` wrote."""
    dictionary = dictionary_of(bridge)
    rows = [
        dictionary.encode_line(bridge.line_of(numbers), add_if_not_exist=False).long()
        for numbers in bridge.numbers_of(TEXTS)
    ]
    return data_utils.collate_tokens(rows, PAD, EOS, left_pad=left)


def own_outputs(bridge: TokenizerBridge, model: Any) -> list[torch.Tensor]:
    """Each text alone, by the tokenizer and the model themselves."""
    numbers = [bridge.tokenizer(text)["input_ids"] for text in TEXTS]
    with torch.no_grad():
        return [
            model(input_ids=torch.tensor([row])).last_hidden_state[0] if row else torch.zeros(0, 8) for row in numbers
        ]


def real_outputs(outputs: torch.Tensor, padding_mask: torch.Tensor) -> list[torch.Tensor]:
    return [row[~absent] for row, absent in zip(outputs, padding_mask)]


@pytest.mark.parametrize("left", [True, False], ids=["left-padded", "right-padded"])
def test_outputs_are_the_encoders_own_in_its_numbering(case, left):
    bridge, model = case
    reads = EncoderInput(bridge, bridge.symbols, "dict.txt")
    ids, padding_mask = reads(batch_of(bridge, left))
    for text, row, absent in zip(TEXTS, ids, padding_mask):
        assert row[~absent].tolist() == bridge.tokenizer(text)["input_ids"]
        assert absent.tolist() == sorted(absent.tolist())  # on the right
    with torch.no_grad():
        outputs = model(input_ids=ids, attention_mask=(~padding_mask).long()).last_hidden_state
    for found, own in zip(real_outputs(outputs, padding_mask), own_outputs(bridge, model), strict=True):
        torch.testing.assert_close(found, own, rtol=0, atol=1e-5)


def test_outputs_are_the_encoders_own_in_fairseqs_numbering(case):
    bridge, model = case
    dictionary = dictionary_of(bridge)
    dictionary.pad_to_multiple_(len(dictionary) + 3)
    reads = EncoderInput(bridge, dictionary.symbols, "dict.txt")
    own = own_outputs(bridge, model)
    before = model.get_input_embeddings()
    rows = reads.fairseq_rows(before.weight)
    assert rows.shape == (len(dictionary), before.weight.shape[1]) and not rows.requires_grad
    numbers, padding_mask = reads.arrange(batch_of(bridge, left=True))
    try:
        model.set_input_embeddings(torch.nn.Embedding.from_pretrained(rows, padding_idx=PAD))
        with torch.no_grad():
            outputs = model(input_ids=numbers, attention_mask=(~padding_mask).long()).last_hidden_state
    finally:
        model.set_input_embeddings(before)
    for found, expected in zip(real_outputs(outputs, padding_mask), own, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_rows_go_to_fairseqs_order_and_back(case):
    bridge, model = case
    dictionary = dictionary_of(bridge)
    dictionary.pad_to_multiple_(len(dictionary) + 3)
    reads = EncoderInput(bridge, dictionary.symbols, "dict.txt")
    weight = model.get_input_embeddings().weight.detach()
    pieces = int(bridge.tokenizer_ids.max()) + 1
    rows = reads.fairseq_rows(weight)
    for number, piece in enumerate(bridge.tokenizer_ids.tolist()):
        if piece >= 0:
            assert torch.equal(rows[number], weight[piece])
    mean = weight[:pieces].mean(dim=0)
    torch.testing.assert_close(rows[len(bridge) :], mean.expand(len(rows) - len(bridge), -1))
    assert len(rows) > len(bridge)  # padding words
    if bridge.tokenizer_ids[PAD] < 0:
        assert rows[PAD].tolist() == [0] * weight.shape[1]
    assert torch.equal(reads.tokenizer_rows(rows, weight), weight)
    changed = reads.tokenizer_rows(rows + 1, weight)
    torch.testing.assert_close(changed[:pieces], weight[:pieces] + 1)
    assert torch.equal(changed[pieces:], weight[pieces:])  # rows that no piece has
    bias = weight[:, 0]  # an output layer's, of one axis
    torch.testing.assert_close(reads.fairseq_rows(bias), rows[:, 0])
    with pytest.raises(ValueError, match=f"{len(rows)} rows expected, one a symbol, but there are 3"):
        reads.tokenizer_rows(rows[:3], weight)


def test_a_symbol_that_the_tokenizer_does_not_have_is_read_as_unknown(tmp_path: Path):
    bridge = TokenizerBridge(str(make_tokenizer(tmp_path / "t5", "t5")))
    reads = EncoderInput(bridge, [*bridge.symbols, "madeupword0000"], "dict.txt")
    assert reads.ids_of(torch.tensor([[0, len(bridge), EOS]])).tolist() == [[2, 2, 1]]  # <unk> is 2, </s> is 1


def test_numbers_belong_to_the_tokenizer_and_not_to_the_checkpoint(tmp_path: Path):
    bridge = TokenizerBridge(str(make_tokenizer(tmp_path / "wordpiece", "wordpiece")))
    assert not EncoderInput(bridge, bridge.symbols, "dict.txt").state_dict()


def test_embedding_of_another_size_is_refused(tmp_path: Path):
    bridge = TokenizerBridge(str(make_tokenizer(tmp_path / "wordpiece", "wordpiece")))
    reads = EncoderInput(bridge, bridge.symbols, "dict.txt")
    size = len(bridge)
    message = rf"wordpiece should have a tokenizer of the {size - 1} pieces that its model embeds, but .* has {size}\. "
    with pytest.raises(InputError, match=message + rf"Where .* added .* model.resize_token_embeddings\({size}\)"):
        reads.fairseq_rows(torch.zeros(size - 1, 2))
    message = rf"of the {2 * size} pieces that its model embeds, but its tokenizer has {size}\. Copy the tokenizer's"
    with pytest.raises(InputError, match=message):
        reads.fairseq_rows(torch.zeros(2 * size, 2))
    with pytest.raises(InputError, match=message):
        reads.tokenizer_rows(torch.zeros(size, 2), torch.zeros(2 * size, 2))


def test_dictionary_of_another_tokenizer_is_refused(tmp_path: Path):
    bridge = TokenizerBridge(str(make_tokenizer(tmp_path / "wordpiece", "wordpiece")))
    other = TokenizerBridge(str(make_tokenizer(tmp_path / "bytes", "bytes")))
    with pytest.raises(InputError, match=r"bin/dict.en.txt should be the dictionary of tokenizer .* at number 4, but"):
        EncoderInput(bridge, other.symbols, "bin/dict.en.txt")


def test_tokenizer_that_closes_a_sentence_with_two_symbols_is_refused(tmp_path: Path):
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    bridge = TokenizerBridge(str(make_tokenizer(tmp_path / "wordpiece", "wordpiece")))
    template = processors.TemplateProcessing(single="$A [SEP] [MASK]", special_tokens=[("[SEP]", 4), ("[MASK]", 5)])
    backend = bridge.tokenizer.backend_tokenizer
    backend.post_processor = template
    roles = {"unk_token": "[UNK]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **roles).save_pretrained(tmp_path / "two")
    bridge = TokenizerBridge(str(tmp_path / "two"))
    with pytest.raises(InputError, match=r"should close a sentence with one symbol, or none, .* \['</s>', '<mask>'\]"):
        EncoderInput(bridge, bridge.symbols, "dict.txt")


def test_a_piece_of_several_roles_goes_back_with_the_row_of_the_sentences_end(tmp_path: Path):
    bridge = TokenizerBridge(str(make_tokenizer(tmp_path / "gpt2", "gpt2")))
    reads = EncoderInput(bridge, bridge.symbols, "dict.txt")
    weight = torch.zeros(len(bridge), 2)
    rows = reads.fairseq_rows(weight)
    rows[0], rows[EOS], rows[3] = 5, 7, 9  # <s>, </s> and <unk> are all <|endoftext|>, number 300
    assert reads.tokenizer_rows(rows, weight)[300].tolist() == [7, 7]
