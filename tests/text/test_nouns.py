"""Nouns by a tagger, or as words that are nouns elsewhere."""

import os
import pickle
import sys

import pytest
import spacy

from visual_grounding.errors import InputError
from visual_grounding.text import nouns
from visual_grounding.text.nouns import KnownNouns, TaggedNouns, installed_tagger, singulars


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """A pipeline whose tags are rules: what a real one says where it needs no weights."""
    made = spacy.blank("en", meta={"name": "rules", "version": "1.2"})
    ruler = made.add_pipe("attribute_ruler")
    for word, tag in {
        "-": "NOUN",
        "dog": "NOUN",
        "dogs": "NOUN",
        "watch": "NOUN",
        "rex": "PROPN",
        "runs": "VERB",
    }.items():
        ruler.add([[{"LOWER": word}]], {"POS": tag})
    folder = tmp_path_factory.mktemp("pipelines") / "rules"
    made.to_disk(folder)
    return str(folder)


def test_tagged_nouns_are_common_nouns_once_each_in_order(pipeline):
    found = TaggedNouns(pipeline)
    texts = ["Rex the Dog - watches; a watch, dogs and a dog.", "", "It runs."]
    assert found.of(texts) == [["dog", "watch", "dogs"], [], []]
    assert found.name == "en_rules-1.2"
    without = TaggedNouns(pipeline, {"watch"})
    assert without.of(texts) == pickle.loads(pickle.dumps(without)).of(texts) == [["dog", "dogs"], [], []]
    assert pickle.loads(pickle.dumps(found)).of(texts[:1]) == [["dog", "watch", "dogs"]]


def test_known_nouns_are_words_of_the_list_and_their_plurals():
    found = KnownNouns(["dog", "Box", "lady", "hot dog", "glasses"])
    assert found.of(["Ladies' DOGS, boxes; a hot day, glasses, a doge, dogs"]) == [
        ["ladies", "dogs", "boxes", "glasses"]
    ]
    assert found.of([]) == [] and found.of([""]) == [[]]
    assert KnownNouns(["can", "dog"], {"can"}).of(["They can run, dogs can't; tin cans"]) == [["dogs", "cans"]]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("dogs", "dog"),
        ("boxes", "box"),
        ("ladies", "lady"),
        ("oxes", "ox"),
        ("ads", "ad"),
        ("dog", "dog"),
        ("s", "s"),
        ("es", "es"),
    ],
)
def test_singulars_have_the_word_and_what_it_is_the_plural_of(word, expected):
    assert expected in singulars(word) and word == singulars(word)[0]
    assert all(singulars(word))


def test_what_is_no_tagger_is_refused(tmp_path):
    with pytest.raises(InputError, match="'nowhere' should be a pipeline of spaCy"):
        TaggedNouns("nowhere")
    for name, content in (("meta.json", "{"), ("meta.json", "{}"), ("config.cfg", "[nlp")):
        folder = tmp_path / f"{name}{content}"
        spacy.blank("en").to_disk(folder)
        (folder / name).write_text(content)
        with pytest.raises(InputError, match=r"should be a pipeline of spaCy, .* but can't be loaded"):
            TaggedNouns(str(folder))
    spacy.blank("en").to_disk(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe/vocab/more.json")
    with pytest.raises(InputError, match=r"can't be loaded: .*more\.json"):
        TaggedNouns(str(tmp_path / "pipe"))
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(InputError, match=r"should tag parts of speech, but has only \[\]"):
        TaggedNouns(str(tmp_path / "blank"))


def test_a_text_that_the_tagger_can_not_read_is_refused(pipeline):
    with pytest.raises(InputError, match="can't read this text"):
        TaggedNouns(pipeline).of(["dog " * 300_000])


def test_without_spacy_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(InputError, match=r"pip install 'visual_grounding\[nouns\]'") as caught:
        TaggedNouns("en_core_web_sm")
    assert caught.value.choices == ("tagger",)
    monkeypatch.setitem(sys.modules, "spacy.util", None)
    assert installed_tagger() is None


def test_an_installed_tagger_is_the_first_english_one(monkeypatch):
    monkeypatch.setattr(spacy.util, "get_installed_models", lambda: ["de_core", "en_core_web_sm", "en_core_web_md"])
    assert nouns.installed_tagger() == "en_core_web_md"
    monkeypatch.setattr(spacy.util, "get_installed_models", lambda: ["de_core"])
    assert nouns.installed_tagger() is None
