"""What the commonest voken tells, of all and of each piece: by hand, against a naive count, what is refused."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from small_tokenizers import make_tokenizer
from small_vokens import change_vokens, write_vokens

from visual_grounding import InputError
from visual_grounding.vokenization import commonest_vokens as module
from visual_grounding.vokenization.commonest_vokens import commonest_vokens
from visual_grounding.vokenization.vokens import Vokens


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"), "wordpiece")


def test_example_by_hand(tmp_path, tokenizer):
    """In training 2 is the commonest (3 of 6), of "dog" 1 is, of "run" 3. "b" never had one, so 2 is guessed.

    Validation: a 2, dog 1, run 2, b 2; one piece has none. Always 2: 3 of 4. By piece: a 2, dog 1 and b 2 are right.
    """
    train = Vokens(write_vokens(tmp_path / "train", ["a a dog dog", "a run"], tokenizer, 4, [[2, 2, 1, 1], [2, 3]]))
    valid = Vokens(write_vokens(tmp_path / "valid", ["a dog", "", "run b dog"], tokenizer, 4, [[2, 1], [], [2, 2, -1]]))
    assert commonest_vokens(train, valid) == (0.75, 0.75, 4)
    assert commonest_vokens(valid, train) == (0.5, 5 / 6, 6)


@pytest.mark.parametrize("at_once", [1, 7, 2**22])
def test_shares_are_those_of_a_naive_count(tmp_path, tokenizer, monkeypatch, at_once):
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    rng = np.random.default_rng(1)
    texts = []
    for split in ("train", "valid"):
        lines = [" ".join(rng.choice(["a", "dog", "run", "b", "s"], rng.integers(0, 6))) for _ in range(40)]
        vokens = [rng.integers(-1, 4, len(line.split())).tolist() for line in lines]
        texts.append(Vokens(write_vokens(tmp_path / split, lines, tokenizer, 4, vokens)))

    def pairs(text: Vokens) -> list[tuple[str, int]]:
        pieces = [piece for line in text.token_lines() for piece in line.split()]
        return [(piece, voken) for piece, voken in zip(pieces, text.vokens.tolist()) if voken >= 0]

    def most(counts: Counter) -> int:
        return min(counts, key=lambda voken: (-counts[voken], voken))

    overall = most(Counter(voken for _, voken in pairs(texts[0])))
    of_piece = {piece: most(Counter(v for p, v in pairs(texts[0]) if p == piece)) for piece, _ in pairs(texts[0])}
    asked = pairs(texts[1])
    expected = [
        sum(voken == overall for _, voken in asked) / len(asked),
        sum(voken == of_piece.get(piece, overall) for piece, voken in asked) / len(asked),
    ]
    assert commonest_vokens(*texts) == (*expected, len(asked)) and 0 < expected[0] < expected[1]


def test_vokens_that_cannot_be_compared_are_refused(tmp_path, tokenizer):
    one = Vokens(write_vokens(tmp_path / "one", ["a dog"], tokenizer, 4))
    other = Vokens(write_vokens(tmp_path / "other", ["a dog"], tokenizer, 5))
    with pytest.raises(
        InputError, match=r"vokens in .*one should be of the same images as those in .*other, but are of"
    ):
        commonest_vokens(other, one)
    pieces = Vokens(write_vokens(tmp_path / "pieces", ["a dog"], make_tokenizer(tmp_path / "bytes", "bytes"), 4))
    with pytest.raises(InputError, match=r"should be of the same pieces as those .*, but are of others: sha256"):
        commonest_vokens(one, pieces)
    none = Vokens(write_vokens(tmp_path / "none", ["a dog"], tokenizer, 4, [[-1, -1]]))
    with pytest.raises(InputError, match=r"none should have vokens to count, but none of its 2 pieces has one"):
        commonest_vokens(none, one)
    with pytest.raises(InputError, match=r"none should have vokens to tell, but none of its 2 pieces has one"):
        commonest_vokens(one, none)
    np.save(one.folder / "vokens.npy", np.array([1, 0], dtype=np.int32))  # as many, which weren't written
    changed, whole = Vokens(one.folder), Vokens(write_vokens(tmp_path / "whole", ["a dog"], tokenizer, 4))
    for texts in ((changed, whole), (whole, changed)):
        with pytest.raises(InputError, match=r"vokens\.npy isn't what was written"):
            commonest_vokens(*texts)
    change_vokens(one.folder, np.array([1, 4], dtype=np.int32))  # written so, but beyond the candidates
    with pytest.raises(InputError, match=r"should hold numbers of its 4 candidates, 0\.\.3, .* but has 4 at 1"):
        commonest_vokens(whole, Vokens(one.folder))


def test_of_equally_common_vokens_the_least_number_is_taken(tmp_path, tokenizer):
    train = Vokens(write_vokens(tmp_path / "train", ["a a dog dog"], tokenizer, 4, [[3, 1, 2, 0]]))
    valid = Vokens(write_vokens(tmp_path / "valid", ["a dog run"], tokenizer, 4, [[1, 0, 0]]))
    assert commonest_vokens(train, valid) == (pytest.approx(2 / 3), 1, 3)
