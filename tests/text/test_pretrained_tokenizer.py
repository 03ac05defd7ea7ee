"""Pretrained tokenizers: how much of a text they know."""

import re

import pytest
from small_dual_encoder import make_dual_encoder
from small_matcher import make_bert
from transformers import AutoTokenizer, BertTokenizer, T5Config

from visual_grounding.errors import InputError
from visual_grounding.text.pretrained_tokenizer import PretrainedTokenizer, check_layers, count_known_pieces


def counts_of(tokenizer, *texts, **options):
    pieces, known = count_known_pieces(tokenizer, tokenizer(list(texts), **options)["input_ids"])
    return list(zip(pieces.tolist(), known.tolist()))


def test_pieces_that_stand_for_the_unknown_are_not_known():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "."]
    tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    assert counts_of(tokenizer, "a dog.", "ein Hund.", "", "zebra") == [(3, 3), (3, 1), (0, 0), (1, 0)]
    assert counts_of(tokenizer, "a", "ein a", padding="max_length", max_length=9) == [(1, 1), (2, 1)]


@pytest.mark.parametrize(("family", "expected"), [("clip", (4, 4)), ("siglip", (2, 1))])
def test_everything_is_known_where_the_symbol_for_the_unknown_has_another_use(tmp_path, family, expected):
    """CLIP's also ends a sentence; SigLIP's is one of its own, and its padding isn't counted."""
    tokenizer = AutoTokenizer.from_pretrained(make_dual_encoder(tmp_path / family, family))
    assert counts_of(tokenizer, "dog xy" if family == "clip" else "dog zebra", padding="max_length") == [expected]


def test_what_is_put_around_a_sentence_is_neither_unknown_nor_a_mask(tmp_path):
    """`[PAD] [UNK] [CLS] [SEP] [MASK]` are 0 to 4; a sentence may have all of them by itself."""
    tokenizer = PretrainedTokenizer(str(make_bert(tmp_path / "bert", ["b"])))
    assert tokenizer.around == {2, 3} and tokenizer.encode(["a b"]) == ([[2, 1, 5, 3]], 0)
    tokenizer.max_tokens = 3
    assert tokenizer.encode(["b b b", "b"]) == ([[2, 5, 3], [2, 5, 3]], 1)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"num_hidden_layers": 101}, "it has 101 as num_hidden_layers"),
        ({"num_hidden_groups": 200_000}, "it has 200000 as num_hidden_groups"),
        ({"num_hidden_groups": 20, "inner_group_num": 20}, "it has 20 as inner_group_num"),
        ({"block_sizes": [60, 60]}, "it has [60, 60] as block_sizes"),
        ({"text_config": {"n_layers": 10**9}}, "it has 1000000000 as n_layers"),
        ({"depths": [10**400]}, "as depths"),
    ],
)
def test_more_layers_than_any_model_has_are_refused(config, said):
    with pytest.raises(ValueError, match=re.escape(said)) as refused:
        check_layers(config)
    assert len(str(refused.value)) < 200
    sound = {"num_hidden_layers": 48, "num_hidden_groups": 12, "inner_group_num": 2, "block_sizes": [4, 4, 4]}
    check_layers({**sound, "id2label": {0: "a"}, "label2id": {"a player": 200}})
    check_layers({**sound, "layer_norm_eps": 1e-12, "block_size": 1024, "group_size": 512, "depths": [2, 2, 18, 2]})


def test_an_encoder_with_a_decoder_is_refused(tmp_path):
    folder = make_bert(tmp_path / "bert", ["b"])
    T5Config().save_pretrained(folder)
    with pytest.raises(InputError, match=r"should be an encoder such as BERT or XLM-R, but .* a decoder \(t5\)"):
        PretrainedTokenizer(str(folder))
