"""`--bpe pretrained_pieces`: what fairseq's registries build, and what it does with lines."""

from argparse import Namespace

import pytest
from fairseq.data import encoders
from small_tokenizers import SENTENCES, make_tokenizer, minilm

from visual_grounding.data.pretrained_pieces import PretrainedPieces, PretrainedPiecesConfig, dictionary_of
from visual_grounding.errors import InputError
from visual_grounding.text.tokenizer_bridge import TokenizerBridge


@pytest.mark.parametrize("registry", ["bpe", "tokenizer"])
def test_fairseq_builds_it_for_generation_and_for_validation(registry):
    build = {"bpe": encoders.build_bpe, "tokenizer": encoders.build_tokenizer}[registry]
    built = build(Namespace(**{registry: "pretrained_pieces"}, bpe_tokenizer=str(minilm())))
    assert isinstance(built, PretrainedPieces)
    assert built.encode("Playing Tennisy!") == "playing tennis ##y !"
    assert built.decode("playing tennis ##y !") == "playing tennisy!"


def test_without_a_tokenizer_it_says_which_flag_is_missing():
    with pytest.raises(InputError, match=r"--bpe pretrained_pieces needs --bpe-tokenizer NAME\|FOLDER"):
        PretrainedPieces(PretrainedPiecesConfig())


@pytest.mark.parametrize(
    ("family", "begins"),
    [
        ("wordpiece", {"dog": True, "##s": False}),
        ("bytes", {"Ġrun": True, "s": False}),
        ("unigram", {"▁dog": True, "s": False}),
    ],
)
def test_a_piece_says_whether_it_begins_a_word(tmp_path, family, begins):
    pieces = PretrainedPieces(PretrainedPiecesConfig(bpe_tokenizer=str(make_tokenizer(tmp_path / family, family))))
    assert {piece: pieces.is_beginning_of_word(piece) for piece in begins} == begins


def test_dictionary_is_the_bridges_own():
    bridge = TokenizerBridge(str(minilm()))
    dictionary = dictionary_of(bridge)
    assert dictionary.symbols == bridge.symbols
    numbers = bridge.numbers_of(SENTENCES)
    assert [dictionary.string(row) for row in numbers] == [bridge.line_of(row) for row in numbers]
