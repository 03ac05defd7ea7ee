"""What is told of each piece: vokens, shuffled, random, the pieces themselves, or one of each sentence."""

from pathlib import Path

import numpy as np
import pytest
from small_tokenizers import make_tokenizer
from small_vokens import write_vokens
from torch import from_numpy

from visual_grounding.data.voken_labels import VokenLabels, commonest
from visual_grounding.data.voken_text import VokenText
from visual_grounding.data.word_masking import Masking
from visual_grounding.modules.masking import BERT_REPLACEMENT
from visual_grounding.text.tokenizer_bridge import TokenizerBridge
from visual_grounding.vokenization.vokens import Vokens

LINES = ["a dog a dog", "", "run run a", "dog"]
VOKENS = [[2, 2, 4, -1], [], [4, 4, 3], [3]]
FLAT = [2, 2, 4, -1, 4, 4, 3, 3]


class Lines(list):
    """As much of fairseq's indexed dataset as there is need of."""

    @property
    def sizes(self) -> np.ndarray:
        return np.array([len(line) for line in self], dtype=np.int32)


def text_of(folder: Path, lines: list[str], vokens: list[list[int]]) -> VokenText:
    tokenizer = make_tokenizer(folder / "tokenizer", "wordpiece")
    written = Vokens(write_vokens(folder / "train", lines, tokenizer, 5, vokens, label="sentence"))
    bridge = TokenizerBridge(str(tokenizer))
    pieces = Lines(from_numpy(np.array([*numbers, 2])) for numbers in bridge.numbers_of(lines))
    return VokenText(pieces, "train", bridge.symbols, written)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> VokenText:
    return text_of(tmp_path_factory.mktemp("vokens"), LINES, VOKENS)


def labels(kind: str = "vokens", seed: int | None = 1, sentence: str = "none", count: int = 5) -> VokenLabels:
    return VokenLabels(kind, count, Masking(0.15, BERT_REPLACEMENT, seed), sentence)


def test_each_piece_has_its_voken_and_the_special_ones_none(text):
    assert labels().of_block(text, 0, 8, 0, 1).tolist() == [-1, *FLAT, -1]
    assert labels().of_block(text, 3, 5, 1, 1).tolist() == [-1, -1, 4, -1]


def test_tokens_are_their_own_labels(text):
    found = labels("tokens").of_block(text, 2, 6, 0, 1)
    assert found.tolist() == [-1, *text.numbers(2, 6), -1]


def test_random_labels_are_uniform_new_in_each_epoch_and_fixed_in_validation(text):
    many = labels("random", count=3)
    found = np.stack([many.of_block(text, 0, 8, block, 1) for block in range(3000)])
    assert ((found == -1) == (np.array([-1, *FLAT, -1]) == -1)).all()  # none where there was no voken
    shares = np.bincount(found[found >= 0]) / (found >= 0).sum()
    np.testing.assert_allclose(shares, [1 / 3] * 3, atol=0.01)
    one, again, next_epoch, other_seed, other_block = (
        labels("random", seed, count=1000).of_block(text, 0, 8, block, epoch).tolist()
        for seed, block, epoch in ((1, 0, 1), (1, 0, 1), (1, 0, 2), (2, 0, 1), (1, 1, 1))
    )
    assert one == again and len({tuple(each) for each in (one, next_epoch, other_seed, other_block)}) == 4
    fixed = [labels("random", None, count=1000).of_block(text, 0, 8, 0, epoch).tolist() for epoch in (1, 2)]
    assert fixed[0] == fixed[1]


def test_shuffled_labels_of_a_batch_are_the_same_ones_at_other_places():
    batch = np.array([[-1, *range(20), -1], [-1, *range(20, 40), -1]])
    made = labels("shuffled")
    found = made.of_batch(batch, 7, 1)
    assert (found[:, [0, -1]] == -1).all() and sorted(found[found >= 0]) == list(range(40))
    assert (found != batch).mean() > 0.8 and (found[0][found[0] >= 0] >= 20).any()  # across blocks
    assert np.array_equal(found, made.of_batch(batch, 7, 1)) and batch[0, 1] == 0
    for other in (made.of_batch(batch, 8, 1), made.of_batch(batch, 7, 2), labels("shuffled", 2).of_batch(batch, 7, 1)):
        assert not np.array_equal(found, other)
    fixed = labels("shuffled", None)
    assert np.array_equal(fixed.of_batch(batch, 7, 1), fixed.of_batch(batch, 7, 2))
    assert labels().of_batch(batch, 7, 1) is batch


def test_cls_is_asked_for_the_voken_of_most_pieces(text):
    """Of 2 2 4 −1 4 4 3 3 that is 4; of the first four pieces 2; of 4 3 3 the first of equals isn't asked: 3."""
    made = labels(sentence="cls")
    for (start, end), expected in {(0, 8): 4, (0, 4): 2, (5, 8): 3, (4, 7): 4, (3, 4): -1}.items():
        found = made.of_block(text, start, end, 0, 1)
        assert found[0] == expected and (found[1:] == -1).all() and len(found) == end - start + 2
    assert commonest(np.array([9, 1, 1, 9])) == 9


def test_first_piece_of_each_sentence_is_asked_as_in_the_papers_code(text):
    """Sentences: 2 2 | 4 | −1 || 4 4 | 3 || 3: a line begins one, and so does another voken within a line."""
    made = labels(sentence="first")
    whole = [2, -1, 4, -1, 4, -1, 3, 3]
    for start in range(8):
        for end in range(start + 1, 9):  # the first piece of a block may go on with the sentence before it
            assert made.of_block(text, start, end, 0, 1)[1:-1].tolist() == whole[start:end], (start, end)


def test_a_piece_without_a_voken_begins_no_sentence_and_nor_does_what_follows_it(tmp_path):
    """Revokenized text has such pieces. Sentences: −1 4 4 || 2 −1 2 2 | −1 3 −1 3."""
    lines, vokens = ["a dog a", "a dog a dog run run a a"], [[-1, 4, 4], [2, -1, 2, 2, -1, 3, -1, 3]]
    text, made = text_of(tmp_path, lines, vokens), labels(sentence="first")
    whole = [-1, -1, -1, 2, -1, -1, -1, -1, 3, -1, -1]
    for start in range(11):
        for end in range(start + 1, 12):
            assert made.of_block(text, start, end, 0, 1)[1:-1].tolist() == whole[start:end], (start, end)
