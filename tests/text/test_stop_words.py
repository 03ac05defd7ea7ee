"""Stop words: this package's English ones, those of a language, those of a file."""

import pytest

from visual_grounding.errors import InputError
from visual_grounding.text.stop_words import ENGLISH, stop_words_named


def test_stop_words_of_a_language_are_split_as_captions_are():
    paper = stop_words_named("en")
    assert len(paper) > 1000 and {"the", "side", "small", "aren", "t"} <= paper and "aren't" not in paper
    assert len(ENGLISH) == 248 and not {"side", "small"} & ENGLISH and len(ENGLISH - paper) < 10
    assert {"der", "die", "und", "für"} <= stop_words_named("de")


def test_stop_words_of_a_file_come_before_a_language_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "de").write_text("Don't\n\nzwei\n")
    assert stop_words_named("de") == {"don", "'", "t", "zwei"}


@pytest.mark.parametrize("name", ["xx", "nowhere/words.txt", "DE"])
def test_stop_words_of_neither_are_refused(name):
    with pytest.raises(InputError, match=rf"a language of stopwords-iso \(af, ar, .*\), but there is no {name}"):
        stop_words_named(name)
