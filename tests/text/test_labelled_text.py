"""Labelled sentences: words in place, one line a text, and parts that share no first sentence."""

import pytest

from visual_grounding.errors import InputError
from visual_grounding.text.labelled_text import Example, LabelledText, joined_words, one_line, share_out


def examples(contexts, each=3):
    return [Example((f"c{n}", f"h{k}"), ("x",)) for n in range(contexts) for k in range(each)]


def test_words_lie_where_they_are_said_to():
    text, spans = joined_words(["u\u0308ber", "dog", "\U0001f415"])
    assert [text[start:end] for start, end in spans] == ["über", "dog", "\U0001f415"]
    assert one_line("u\u0308 \t\u00a0b\nc") == "ü b c"
    assert joined_words([]) == ("", ())


def test_parts_have_their_shares_and_no_first_sentence_twice():
    whole = examples(100)
    parts = share_out(whole, [80, 10, 10], seed=1)
    assert [len(part) for part in parts] == [240, 30, 30]
    texts = [{each.texts[0] for each in part} for part in parts]
    assert not texts[0] & texts[1] and not texts[0] & texts[2] and not texts[1] & texts[2]
    assert sorted(each for part in parts for each in part) == sorted(whole)
    order = {each: number for number, each in enumerate(whole)}
    assert all([order[each] for each in part] == sorted(order[each] for each in part) for part in parts)
    assert share_out(whole, [80, 10, 10], seed=1) == parts != share_out(whole, [80, 10, 10], seed=2)


def test_too_few_to_share_are_refused():
    with pytest.raises(
        InputError, match="80 10 10 % should leave something for each part, but there are 6 examples of 2"
    ):
        share_out(examples(2), [80, 10, 10], seed=1)


def test_remarks_are_counted_over_files():
    whole = LabelledText()
    for rows in (3, 5):
        part = LabelledText(examples(1), rows)
        part.remarks["are odd."] += 1
        whole.add(part)
    assert list(whole.said("rows")) == ["2 of 8 rows (25.0 %) are odd."] and len(whole.examples) == 6
