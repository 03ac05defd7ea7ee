"""Spans of many texts at once against one piece at a time, and against what transformers says of each text."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_tokenizers import AWKWARD, FAMILIES, SENTENCES, make_tokenizer

from visual_grounding.text.pretrained_tokenizer import composed
from visual_grounding.text.spans import spans_of_encodings, without_space
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

# Letters that tokenizers treat apart: accents alone and in one code point, one that stands for several (ﬁ ½ ﷺ), several
# bytes, kinds of white space and of nothing, sentencepiece's and BERT's own marks.
LETTERS = "aAdoguns.,' \t\u00a0\u2003\u3000\x85\u200b\ufeff\u0308\u0301üßéﬁ½ﷺ①狗が\u3099🐕👩\u200d👩ᄀ가İſΣ▁Ġ#<>[]\x00"
TEXTS = st.lists(st.text(st.sampled_from(LETTERS) | st.characters(exclude_categories=["Cs"]), max_size=12), max_size=4)


def stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """A span without its white space, by Python's own idea of it."""
    covered = text[start:end]
    start += len(covered) - len(covered.lstrip())
    return start, start + len(covered.strip())


@given(st.text(st.sampled_from("ab \t\u00a0\u2003\u3000\x85\x1c\u200b🐕"), max_size=12), st.data())
@settings(max_examples=60, deadline=None)
def test_white_space_is_left_out_as_python_strips_it(text, data):
    places = st.integers(0, len(text))
    spans = data.draw(st.lists(st.tuples(places, places).map(sorted), max_size=8))
    starts, ends = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    found = without_space(text, starts, ends)
    assert list(zip(*(each.tolist() for each in found))) == [stripped(text, *span) for span in spans]


def test_white_space_is_what_python_says():
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    places = np.arange(len(every))
    starts, ends = without_space(every, places, places + 1)
    assert "".join(every[place] for place in np.flatnonzero(starts == ends)) == "".join(filter(str.isspace, every))


@pytest.fixture(scope="module", params=FAMILIES)
def bridge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TokenizerBridge:
    return TokenizerBridge(str(make_tokenizer(tmp_path_factory.mktemp("tokenizers") / request.param, request.param)))


@given(TEXTS)
@example([*SENTENCES, *AWKWARD])
@example(["", "", " ", ""])
@settings(max_examples=25, deadline=None)
def test_spans_of_many_texts_are_those_of_each(bridge, texts):
    texts = [composed(text) for text in texts]
    encodings = bridge.encodings_of(texts)
    spans = spans_of_encodings(texts, encodings)
    expected = []
    for text in texts:
        said = bridge.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        expected.append([stripped(text, *span) for span in said["offset_mapping"]])
    assert spans.by_text() == bridge.spans_of(texts) == expected
    assert spans.texts.tolist() == [sum(map(len, texts[:n])) for n in range(len(texts) + 1)]
    assert np.diff(spans.pieces).tolist() == [len(each) for each in expected]
    assert (spans.starts <= spans.ends).all() and len(spans.starts) == len(spans.ends) == spans.pieces[-1]
    assert bridge.lines_of(encodings) == [bridge.line_of(numbers) for numbers in bridge.numbers_of(texts)]


def test_earlier_calls_to_the_tokenizer_do_not_cut_texts_or_fill_them_up(bridge):
    before = bridge.spans_of(SENTENCES)
    bridge.tokenizer(SENTENCES, truncation=True, max_length=3)
    if bridge.tokenizer.pad_token_id is not None:
        bridge.tokenizer(SENTENCES, padding=True)
    assert bridge.spans_of(SENTENCES) == before and len(before[1]) > 3
    assert bridge.lines_of(bridge.encodings_of(SENTENCES)) == [bridge.line_of(n) for n in bridge.numbers_of(SENTENCES)]
