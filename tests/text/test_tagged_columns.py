"""CoNLL's columns: sentences, documents, columns, and schemes of tags."""

import pytest
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


@pytest.mark.parametrize(
    "tags",
    [
        ["I-A", "I-A", "B-A", "O", "I-B", "I-A"],
        ["O", "I-A", "I-B", "B-B", "I-B"],
        ["B-A", "I-A", "O", "B-A"],
    ],
)
def test_entities_stay_what_conlleval_sees(tags):
    assert get_entities(to_bio(tags)) == get_entities(tags)


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
