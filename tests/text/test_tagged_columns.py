"""CoNLL's columns: sentences, documents, columns, and schemes of tags."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from visual_grounding.errors import InputError
from visual_grounding.text.tagged_columns import read_tagged, to_bio

TEXT = """-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
Ann NNP I-NP B-PER
"""


def write(folder, text):
    (folder / "t.txt").write_text(text, encoding="utf-8")
    return folder / "t.txt"


def test_sentences_words_and_tags_are_read(tmp_path):
    path = write(tmp_path, TEXT)
    found = read_tagged(path)
    assert [(each.texts, each.answer) for each in found.examples] == [
        (("EU rejects",), ("B-ORG", "O")),
        (("Peter Blackburn Ann",), ("B-PER", "I-PER", "B-PER")),
    ]
    assert found.examples[1].words == ((0, 5), (6, 15), (16, 19))
    assert list(found.said("sentences")) == [
        f"2 of 2 sentences (100.0 %) of {path} had other tags than BIO has (IOB1 or another scheme), which are changed."
    ]
    chunks = read_tagged(path, column=3)
    assert [each.answer for each in chunks.examples] == [("B-NP", "B-VP"), ("B-NP", "I-NP", "I-NP")]


def test_bio_stays_as_it_is(tmp_path):
    found = read_tagged(write(tmp_path, "a B-X\nb I-X\nc B-X\n\n\nd O\n"))
    assert [each.answer for each in found.examples] == [("B-X", "I-X", "B-X"), ("O",)] and not found.remarks


def things(tags):
    """What conlleval sees, (kind, first, last), by its rules for where one starts and ends, those of IOBES included."""
    found, start = [], None
    for place, (before, tag) in enumerate(pairwise(["O", *tags, "O"])):
        (last, _, of_last), (prefix, _, kind) = before.partition("-"), tag.partition("-")
        ends = last in ("E", "S") or prefix in ("B", "S", "O") or kind != of_last
        if start is not None and ends:
            found.append((of_last, start, place - 1))
            start = None
        if prefix in ("B", "S") or (prefix in ("I", "E") and (last in ("O", "E", "S") or kind != of_last)):
            start = place
    return found


@given(st.lists(st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in "AB")]), max_size=8))
@example(["B-A", "E-A", "I-A"])
@example(["S-A", "I-A"])
def test_entities_stay_what_conlleval_sees(tags):
    assert things(["I-PER", "I-PER", "B-PER", "O", "S-LOC"]) == [("PER", 0, 1), ("PER", 2, 2), ("LOC", 4, 4)]  # by hand
    bio = to_bio(tags)
    assert things(bio) == things(tags) == get_entities(bio)
    assert to_bio([tag.replace("E-", "L-").replace("S-", "U-") for tag in tags]) == bio == to_bio(bio)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dog\n", r"t.txt:1 should have a word and, in the last column, its tag, but is 'dog'"),
        ("dog NN X\n", "t.txt:1 should have a tag such as O, B-PER or I-PER, but has 'X'"),
        ("dog B-\n", "but has 'B-'"),
        ("\n-DOCSTART- O\n", "should hold words with tags, but has none"),
    ],
)
def test_what_has_no_tag_is_refused(text, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_tagged(write(tmp_path, text))


def test_a_column_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="in column 5, its tag"):
        read_tagged(write(tmp_path, TEXT.replace("-DOCSTART- -X- -X- O", "")), column=5)
