"""Words that a mask touches leave the text, of every family of tokenizers; what was hidden makes no difference."""

import numpy as np
import pytest
from small_tokenizers import SENTENCES, make_tokenizer, minilm

from visual_grounding.errors import InputError
from visual_grounding.text.masked_words import WordsOfPieces
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

FAMILIES = ["wordpiece", "bytes", "gpt2", "unigram", "albert", "t5"]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    return {family: WordsOfPieces(TokenizerBridge(str(make_tokenizer(folder / family, family)))) for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_word_is_hidden_whole_by_each_of_its_pieces(words, family):
    found = words[family]
    text = "birdsong runball dogs"
    numbers = np.array(found.bridge.numbers_of([text])[0])
    word = found.words(numbers)
    assert len(numbers) > 3 and sorted(set(word.tolist())) == [0, 1, 2]
    for place in range(len(numbers)):
        hidden = np.arange(len(numbers)) == place
        left = [each for number, each in enumerate(text.split()) if number != word[place]]
        assert found.without(numbers, hidden).split() == left


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_hidden_leaves_the_text_and_everything_nothing(words, family):
    found = words[family]
    numbers = np.array(found.bridge.numbers_of(["the ball runs"])[0])
    none = np.zeros(len(numbers), dtype=bool)
    assert found.without(numbers, none).split() == ["the", "ball", "runs"]
    assert found.without(numbers, ~none) == ""
    assert found.without(numbers[:0], none[:0]) == ""


@pytest.mark.parametrize("family", FAMILIES)
def test_queries_do_not_change_when_what_is_hidden_is_replaced(words, family):
    found = words[family]
    rng = np.random.default_rng(0)
    changed = 0
    for text in SENTENCES:
        numbers = np.array(found.bridge.numbers_of([text])[0])
        for _ in range(20):
            hidden = rng.random(len(numbers)) < 0.3
            others = numbers.copy()
            for place in np.flatnonzero(hidden):
                alike = (found._begins == found._begins[numbers[place]]) & (found._ends == found._ends[numbers[place]])
                alike[:4] = False
                others[place] = rng.choice(np.flatnonzero(alike))
            changed += not np.array_equal(numbers, others)
            assert found.without(others, hidden) == found.without(numbers, hidden)
            kept = found.without(numbers, hidden).split()
            assert len(kept) <= len(text.split()) + text.count("'") * 2 + 4
    assert changed > 50


def test_punctuation_is_a_word_of_wordpiece_and_part_of_one_elsewhere(words):
    for family, left in (("wordpiece", "' s"), ("bytes", "")):
        found = words[family]
        numbers = np.array(found.bridge.numbers_of(["ball's"])[0])
        assert found.without(numbers, np.arange(len(numbers)) == 0) == left


def test_unknown_pieces_are_left_out():
    found = WordsOfPieces(TokenizerBridge(str(minilm())))
    numbers = np.array(found.bridge.numbers_of(["a dog 🐕 barks"])[0])
    assert found.without(numbers, np.zeros(len(numbers), dtype=bool)) == "a dog barks"


def test_ends_of_words_tell_as_well(tmp_path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<unk>": 0, "d": 1, "o": 2, "g</w>": 3, "a</w>": 4, "c": 5}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", end_of_word_suffix="</w>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Whitespace(), decoders.BPEDecoder()
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>").save_pretrained(tmp_path / "t")
    found = WordsOfPieces(TokenizerBridge(str(tmp_path / "t")))
    numbers = np.array(found.bridge.numbers_of(["a dog a"])[0])
    assert found.words(numbers).tolist() == [0, 1, 1, 1, 2]
    assert found.without(numbers, np.array([False, False, True, False, False])).split() == ["a", "a"]


def test_a_tokenizer_that_does_not_mark_words_is_refused(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE(vocab={"<unk>": 0, "a": 1}, merges=[], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>").save_pretrained(tmp_path / "t")
    with pytest.raises(InputError, match=r"should mark where words begin .* but is a BPE with Whitespace around it"):
        WordsOfPieces(TokenizerBridge(str(tmp_path / "t")))
