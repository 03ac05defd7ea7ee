"""VUA's files: a verb a row, or every noun of a sentence."""

import pytest

from visual_grounding.errors import InputError
from visual_grounding.text.metaphors import read_metaphors

VERBS = 'text_idx,sentence_idx,verb,sentence,verb_idx,label\na,1,fail,"Ca n\'t fail , na\xefve .",2,1\n'
PARTS = "['DET', 'NOUN', 'VERB', 'NOUN', 'PUNCT']"
WORDS = f'txt_id,sentence,label_seq,pos_seq\na,A dog eats time .,"[0, 0, 1, 1, 0]","{PARTS}"\n'


def read(folder, text, encoding="utf-8", **choices):
    (folder / "v.csv").write_bytes(text.encode(encoding))
    found, _ = read_metaphors(folder / "v.csv", **choices)
    return [
        (each.texts[0], each.answer[0], *(each.texts[0][slice(*span)] for span in each.words))
        for each in found.examples
    ]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8", "utf-8-sig"])
def test_verbs_are_read_in_either_encoding(encoding, tmp_path):
    assert read(tmp_path, VERBS, encoding) == [("Ca n't fail , naïve .", "1", "fail")]


def test_every_noun_is_an_example(tmp_path):
    assert read(tmp_path, WORDS) == [("A dog eats time .", "0", "dog"), ("A dog eats time .", "1", "time")]
    assert read(tmp_path, WORDS, part_of_speech="VERB") == [("A dog eats time .", "1", "eats")]


def test_verbs_are_asked_of_where_a_file_names_them(tmp_path):
    for other in ("ADJ", "NOUN"):
        with pytest.raises(InputError, match=rf"v.csv names a verb in each row, so there is no {other} to ask of"):
            read(tmp_path, VERBS, part_of_speech=other)
    for text, asked in ((VERBS, "VERB"), (WORDS, "NOUN")):
        (tmp_path / "v.csv").write_text(text)
        assert read_metaphors(tmp_path / "v.csv")[1] == asked


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (VERBS.replace(",2,1", ",6,1"), r"v.csv:2 should have one of the 6 words of its sentence, .* has 6"),
        (VERBS.replace(",2,1", ",-1,1"), "counted from 0, in column verb_idx, but has -1"),
        (VERBS.replace("verb_idx,label", "verb_idx,meant"), "lacks label"),
        (WORDS.replace("pos_seq", "pos"), "should have columns sentence, label_seq, pos_seq, but lacks pos_seq"),
        (WORDS.replace("0, 0, 1, 1, 0", "0, 0, 1"), "for each of its 5 words, but has 3 and 5"),
        (WORDS.replace("[0, 0, 1, 1, 0]", "__import__('os')"), "should have lists"),
        (WORDS.replace("[0, 0, 1, 1, 0]", "[" + "-" * 3000 + "1, 0]"), "should have lists"),
        (WORDS.replace("NOUN", "PRON"), "none of its 1 sentences has a word of part of speech NOUN"),
        (VERBS.replace(",2,1", ",\u00b2,1"), "counted from 0, in column verb_idx, but has \u00b2"),
        (WORDS.replace("[0, 0, 1, 1, 0]", f"[0, 0x{'F' * 5000}, 1, 1, 0]"), "but says a larger number"),
        (WORDS.replace("[0, 0, 1, 1, 0]", f"[0, [0x{'F' * 5000}], 1, 1, 0]"), "0 of other words, but says a list"),
        (WORDS.replace("[0, 0, 1, 1, 0]", "[0, 0, 1, 2, 0]"), "0 of other words, but says 2"),
        (VERBS.replace(",2,1", ",2,"), "v.csv:2 should say 1 of a metaphor and 0 of other words, but says ''"),
        ('sentence,verb_idx,label\na b\n', "v.csv:2 should have 3 columns, but has fewer"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(text, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(("begins", "kind"), [(b"PAR1", "a parquet file"), (b"PK\x03\x04", "a zip archive")])
def test_a_file_of_another_kind_is_named(tmp_path, begins, kind):
    """In Latin-1 every byte is a letter."""
    (tmp_path / "v.csv").write_bytes(begins + bytes(range(256)))
    with pytest.raises(InputError, match=rf"v\.csv should be text, but is {kind}"):
        read_metaphors(tmp_path / "v.csv")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.csv can't be read"):
        read_metaphors(tmp_path / "none.csv")
