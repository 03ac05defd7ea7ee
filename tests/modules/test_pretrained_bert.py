"""A BERT of transformers in the dictionary's numbers: its rows, its head, and what is refused."""

import json

import pytest
import torch
from small_tokenizers import make_tokenizer, minilm
from vision_language import small_bert

from visual_grounding import InputError
from visual_grounding.modules.pretrained_bert import CHOICES, bert_config, read_bert
from visual_grounding.text.tokenizer_bridge import TokenizerBridge


def test_rows_of_words_and_of_the_head_are_the_dictionarys(tmp_path):
    from transformers import BertForMaskedLM

    bridge = TokenizerBridge(str(small_bert(tmp_path)))
    own = BertForMaskedLM.from_pretrained(tmp_path)
    read = read_bert(str(tmp_path), [*bridge.symbols, "madeupword0000"], "dict.txt")
    words, bias = read.body["bert.embeddings.word_embeddings.weight"], read.head["bias"]
    assert words.shape == (len(bridge) + 1, 16) and bias.shape == (len(bridge) + 1,)
    for number, theirs in enumerate(bridge.tokenizer_ids.tolist()):
        torch.testing.assert_close(words[number], own.bert.embeddings.word_embeddings.weight[theirs])
        torch.testing.assert_close(bias[number], own.cls.predictions.bias[theirs])
    torch.testing.assert_close(read.head["transform.dense.weight"], own.cls.predictions.transform.dense.weight)
    assert sorted(read.head) == ["bias", *(f"transform.{part}" for part in
        ("LayerNorm.bias", "LayerNorm.weight", "dense.bias", "dense.weight"))]  # fmt: skip


def test_model_without_a_head_begins_one_and_says_so(caplog):
    bridge = TokenizerBridge(str(minilm()))
    read = read_bert(str(minilm()), bridge.symbols, "dict.txt")
    assert read.head == {} and "has no head for masked words: where one is needed" in caplog.text
    assert read.choices["hidden_size"] == 384 and sorted(read.choices) == sorted(CHOICES)
    assert json.loads(json.dumps(read.choices)) == read.choices


def test_kept_choices_make_the_same_configuration(tmp_path):
    from transformers import BertConfig

    bridge = TokenizerBridge(str(small_bert(tmp_path)))
    config = bert_config(read_bert(str(tmp_path), bridge.symbols, "dict.txt").choices, len(bridge))
    own = BertConfig.from_pretrained(tmp_path)
    assert {name: getattr(config, name) for name in CHOICES} == {name: getattr(own, name) for name in CHOICES}
    assert config._attn_implementation == "sdpa" and config.pad_token_id == 1


def test_what_is_no_bert_or_of_another_dictionary_is_refused(tmp_path):
    folder = small_bert(tmp_path / "bert")
    symbols = TokenizerBridge(str(folder)).symbols
    with pytest.raises(InputError, match=r"train/dict.txt should be the dictionary of tokenizer .* at number 5.* 'x' "):
        read_bert(str(folder), [*symbols[:5], "x", *symbols[6:]], "train/dict.txt")
    with pytest.raises(InputError, match=r"BERT 'no/where' should be a folder with a pretrained model, or a model's n"):
        read_bert("no/where", symbols, "dict.txt")
    other = make_tokenizer(tmp_path / "roberta", "bytes")
    (other / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    with pytest.raises(InputError, match=r"roberta should be a BERT with absolute positions, but is of kind 'roberta'"):
        read_bert(str(other), symbols, "dict.txt")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(InputError, match=r"should have all weights of a BERT, but lacks bert.encoder.layer.2"):
        read_bert(str(folder), symbols, "dict.txt")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_attention_heads": 3}, "a BERT's 3 heads should divide its size, 16, but don't"),
        ({"hidden_size": 0}, "of a BERT should have a whole number from 1 to 2097152 as 'hidden_size', but has 0"),
        ({"num_hidden_layers": -1}, "a whole number from 1 to 2097152 as 'num_hidden_layers', but has -1"),
        ({"num_hidden_layers": 101}, "a BERT should have layers as models have, but it has 101 as num_hidden_layers"),
        ({"type_vocab_size": "2"}, "a whole number from 1 to 2097152 as 'type_vocab_size', but has '2'"),
        ({"hidden_act": 3}, "should have text as 'hidden_act', but has 3"),
        ({"hidden_dropout_prob": 1.5}, "a number from 0 to 1 as 'hidden_dropout_prob', but has 1.5"),
        ({"max_position_embeddings": 2}, r"positions for a word between \[CLS\] and \[SEP\], 3 at least, but has 2"),
    ],
)
def test_sizes_that_make_no_bert_are_refused(wrong, message):
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 1,
             "max_position_embeddings": 9}  # fmt: skip
    bert_config(sizes, 10)
    with pytest.raises(InputError, match=message):
        bert_config({**sizes, **wrong}, 10)
