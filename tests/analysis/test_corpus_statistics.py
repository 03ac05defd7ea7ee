"""Table 1's numbers, by hand and against plain loops."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from small_tokenizers import make_tokenizer

from visual_grounding.analysis import corpus_statistics
from visual_grounding.analysis.corpus_statistics import (
    Corpus,
    Counts,
    Pieces,
    Words,
    count_corpus,
    grounded_types,
    grounding_ratio,
    jensen_shannon,
    statistics_of,
)
from visual_grounding.storage.lines import sha256_of_lines
from visual_grounding.text.stop_words import ENGLISH
from visual_grounding.text.tokenizer_bridge import TokenizerBridge


def counted(codes: list[int]) -> Counts:
    counts = Counts()
    counts.add(np.array(codes, dtype=np.int64))
    return counts


def naive_divergence(ours: list[int], theirs: list[int]) -> float:
    """The definition, type by type."""
    p, q = Counter(ours), Counter(theirs)
    total = 0.0
    for each in p | q:
        own, other = p[each] / len(ours), q[each] / len(theirs)
        middle = (own + other) / 2
        total += sum(share * math.log2(share / middle) / 2 for share in (own, other) if share)
    return total


def test_divergence_by_hand():
    """P = (1/2, 1/2, 0), Q = (1/2, 0, 1/2), M = (1/2, 1/4, 1/4).

    KL(P | M) = 1/2 log2 1 + 1/2 log2 2 = 1/2, and so is KL(Q | M): the divergence is 1/2 bit.
    """
    assert jensen_shannon(counted([7, 8]), counted([7, 9])) == 0.5
    assert jensen_shannon(counted([7, 8] * 3), counted([9, 7] * 5)) == 0.5  # of distributions, not of counts


def test_divergence_is_0_for_the_same_and_1_bit_for_nothing_in_common():
    assert jensen_shannon(counted([1, 2, 2]), counted([2, 1, 2])) == 0
    assert jensen_shannon(counted([0, 1, 1]), counted([2, 3, 4])) == pytest.approx(1, abs=1e-12)
    assert jensen_shannon(counted([]), counted([1])) is None is jensen_shannon(counted([1]), counted([]))


CODES = st.lists(st.integers(0, 8), min_size=1, max_size=30)


@given(CODES, CODES)
@settings(max_examples=60, deadline=None)
def test_divergence_is_that_of_the_definition_and_of_scipy(ours, theirs):
    found = jensen_shannon(counted(ours), counted(theirs))
    assert found == pytest.approx(naive_divergence(ours, theirs), abs=1e-12)
    shares = [[each.count(code) / len(each) for code in range(9)] for each in (ours, theirs)]
    assert found == pytest.approx(jensenshannon(*shares, base=2) ** 2, abs=1e-7)


@given(st.lists(st.lists(st.integers(0, 2**40), max_size=9), max_size=9), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_counts_are_those_of_a_counter_however_they_come(parts, merged_at):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_statistics, "_MERGED_AT", merged_at)
        counts = Counts()
        for part in parts:
            counts.add(np.array(part, dtype=np.int64))
            counts.add(np.array(part[:2], dtype=np.int64))
        types, many = counts.result()
    expected = Counter(code for part in parts for code in [*part, *part[:2]])
    assert dict(zip(types.tolist(), many.tolist())) == expected and types.tolist() == sorted(expected)


def corpus_of(folder: Path, lines: list[str], tokens: Words | Pieces, language: str | None = "en") -> Corpus:
    path = folder / "text"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return count_corpus([path], tokens, language)


def test_corpus_by_hand(tmp_path):
    """Two sentences in the first line, one in the third; types: the 3, dog 2, runs 1, . 3, sleeps 1, birds 1.

    Pairs: "the dog" 2, "dog runs", "runs .", "dog sleeps", "sleeps .", "the birds", "birds .": none over a sentence's
    end.
    """
    words = Words()
    corpus = corpus_of(tmp_path, ["The dog runs. The dog sleeps.", "  ", "The birds."], words)
    types, many = corpus.types.result()
    named = {words.text_of(code): count for code, count in zip(types.tolist(), many.tolist())}
    assert named == {"the": 3, "dog": 2, "runs": 1, ".": 3, "sleeps": 1, "birds": 1}
    pairs, many = corpus.pairs.result()
    first, second = (pairs // 2**32).tolist(), (pairs % 2**32).tolist()
    named = {f"{words.text_of(a)} {words.text_of(b)}": n for a, b, n in zip(first, second, many.tolist())}
    assert named == {"the dog": 2, **dict.fromkeys(["dog runs", "runs .", "dog sleeps", "sleeps ."], 1),
                     "the birds": 1, "birds .": 1}  # fmt: skip
    assert (corpus.sentences, corpus.lines) == (3, 3)
    assert corpus.sha256 == sha256_of_lines(["The dog runs. The dog sleeps.", "  ", "The birds."])
    assert corpus_of(tmp_path, ["The dog runs. The dog sleeps."], words, language=None).sentences == 1


@pytest.mark.parametrize("family", ["bytes", "unigram", "wordpiece"])
def test_white_space_behind_a_sentence_is_no_piece(tmp_path, family):
    pieces = Pieces(TokenizerBridge(str(make_tokenizer(tmp_path / "tokenizer", family))))
    together = corpus_of(tmp_path, ["The dog runs. A dog sits.  Two birds sing. "], pieces)
    apart = corpus_of(tmp_path, ["The dog runs.", "A dog sits.", "Two birds sing."], pieces)
    for ours, theirs in ((together.types, apart.types), (together.pairs, apart.pairs)):
        assert [each.tolist() for each in ours.result()] == [each.tolist() for each in theirs.result()]


def test_grounding_ratio_by_hand(tmp_path):
    """In the captions dog, runs and . occur 3 times and the 6 times; more than twice: all of them, but the and . don't
    count. Of the text's 8 tokens dog (2) and runs (1) are grounded: 3/8."""
    words = Words()
    captions = corpus_of(
        tmp_path, ["The dog runs the.", "The dog runs the. A cat", "the dog runs the.", "A cat"], words
    )
    grounded = grounded_types(captions.types, words.text_of, ENGLISH, above=2)
    assert sorted(map(words.text_of, grounded.tolist())) == ["dog", "runs"]
    text = corpus_of(tmp_path, ["A dog , the cat runs , dog"], words)
    assert grounding_ratio(text.types, grounded) == 3 / 8
    assert grounded_types(captions.types, words.text_of, ENGLISH, above=3).tolist() == []
    assert grounding_ratio(text.types, np.zeros(0, np.int64)) == 0
    assert grounding_ratio(Counts(), grounded) is None


def test_pieces_are_counted_as_the_tokenizer_cuts_sentences(tmp_path):
    bridge = TokenizerBridge(str(make_tokenizer(tmp_path / "bert", "wordpiece")))
    pieces = Pieces(bridge)
    corpus = corpus_of(tmp_path, ["A dog runs. 狗 runs."], pieces)
    types, many = corpus.types.result()
    named = {pieces.bridge.tokenizer.convert_ids_to_tokens(code): count for code, count in zip(types.tolist(), many)}
    assert named == {"a": 1, "dog": 1, "run": 2, "##s": 2, ".": 2, "[UNK]": 1}
    grounded = grounded_types(corpus.types, pieces.text_of, ENGLISH, above=0)
    assert sorted(map(pieces.text_of, grounded.tolist())) == ["##s", "dog", "run"]  # no special piece, no stop word
    byte_level = Pieces(TokenizerBridge(str(make_tokenizer(tmp_path / "gpt", "gpt2"))))
    corpus = corpus_of(tmp_path, ["A dog runs. the birds"], byte_level)
    grounded = grounded_types(corpus.types, byte_level.text_of, ENGLISH, above=0)
    assert " birds" in map(byte_level.text_of, grounded.tolist()) and len(grounded)
    assert not {" the", "the", "."} & set(map(byte_level.text_of, grounded.tolist()))


def test_row_of_a_corpus_by_hand(tmp_path):
    """`a` 6 times is of the vocabulary, `b` 5 times isn't; 12 tokens in 2 sentences."""
    words = Words()
    corpus = corpus_of(tmp_path, ["a a a b b b b b", "a a a c"], words)
    row = statistics_of(corpus, corpus, np.array([1]))  # b
    assert (row.tokens, row.sentences, row.vocabulary, row.tokens_per_sentence, row.types) == (12, 2, 1, 6, 3)
    assert (row.divergence_1, row.divergence_2, row.grounding_ratio) == (0, 0, 5 / 12)
    alone = statistics_of(corpus, None, None)
    assert (alone.divergence_1, alone.divergence_2, alone.grounding_ratio) == (None, None, None)
    nothing = statistics_of(corpus_of(tmp_path, ["", " "], words), corpus, np.array([1]))
    assert nothing[:7] == (0, 0, 0, None, None, None, None) and nothing.lines == 2


def test_blocks_do_not_matter(tmp_path, monkeypatch):
    lines = ["The dog runs. The dog sleeps.", "", "The birds. And the dog", "sits"]
    whole = corpus_of(tmp_path, lines, Words())
    monkeypatch.setattr(corpus_statistics, "_BLOCK", 2)
    parts = corpus_of(tmp_path, lines, Words())
    for name in ("types", "pairs"):
        assert [each.tolist() for each in getattr(whole, name).result()] == [
            each.tolist() for each in getattr(parts, name).result()
        ]
    assert (whole.sentences, whole.sha256) == (parts.sentences, parts.sha256) == (5, sha256_of_lines(lines))
