"""Sentences tile the text: nothing is lost, added or moved."""

from hypothesis import given
from hypothesis import strategies as st

from visual_grounding.text.sentences import sentence_starts

LETTERS = st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(list(". !?\"'()\n\r\t\u2028A b1。")))


def test_sentences_begin_where_they_should():
    assert sentence_starts("A dog runs. Where to?  Home!") == [0, 12, 23]
    assert sentence_starts("狗跑了。 它回家。", "zh") == [0, 5]
    assert sentence_starts("") == [] and sentence_starts("no end") == [0]


@given(st.text(LETTERS, max_size=60))
def test_sentences_tile_any_text(text):
    starts = sentence_starts(text)
    assert starts == sorted(set(starts)) and all(0 <= start < len(text) for start in starts)
    assert starts[:1] == ([0] if text else [])
