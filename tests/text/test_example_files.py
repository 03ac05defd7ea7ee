"""Example folders: pieces, first pieces of words, separators, and what a later run keeps."""

import json
import shutil

import pytest
from small_tokenizers import FAMILIES, make_tokenizer, minilm

from visual_grounding.errors import InputError
from visual_grounding.storage.lines import read_lines, sha256_of_lines
from visual_grounding.text.example_files import (
    asked_of,
    check_unchanged,
    digest_of_examples,
    first_pieces,
    read_asked,
    separators_of,
    write_examples,
)
from visual_grounding.text.labelled_text import CLASSES, TAGS, VALUES, Example, joined_words
from visual_grounding.text.tokenizer_bridge import TokenizerBridge


def of_words(words, answer=("O",)):
    text, spans = joined_words(words)
    return Example((text,), answer, spans)


def test_first_pieces_are_where_the_tokenizer_says(tmp_path):
    bridge = TokenizerBridge(str(minilm()))
    words = ["EU", "u\u0308bernaturally", "1996-08-30", "\u200b", "x."]
    example = of_words(words, ("O",) * 5)
    asked = asked_of(TAGS, [example], bridge)
    write_examples(tmp_path / "e", {"train": [example]}, asked, bridge, "made", dict, lambda _: None)
    (line,) = read_lines(tmp_path / "e/train.first.pieces")
    (places,) = read_lines(tmp_path / "e/train.words")
    pieces = line.split()
    found = [pieces[place] if place >= 0 else None for place in map(int, places.split())]
    assert found[0] == "eu" and found[2] == "1996" and found[3] is None and found[4] == "x"
    assert pieces[int(places.split()[1])].startswith("uber"[: len(found[1])])
    # A naive twin: cut each word by itself, and count.
    count, naive = 0, []
    for word in words:
        own = bridge.tokenizer.tokenize(word)
        naive.append(count if own else -1)
        count += len(own)
    assert [int(place) for place in places.split()] == naive and count == len(pieces)


def test_words_without_pieces_have_none():
    assert first_pieces([(0, 2), (3, 4), (5, 9)], [(0, 2), (5, 7), (7, 9)]) == [0, -1, 1]
    assert first_pieces([(0, 1), (1, 2)], [(0, 2)]) == [0, 0]  # a piece of two words is the first of both


@pytest.mark.parametrize(("family", "count"), [("wordpiece", 1), ("bytes", 2), ("unigram", 2), ("albert", 1)])
def test_two_sentences_are_told_apart_as_the_tokenizer_does(family, count, tmp_path):
    bridge = TokenizerBridge(str(make_tokenizer(tmp_path / family, family)))
    assert separators_of(bridge) == count
    one, other = bridge.numbers_of(["dog", "runs"])
    theirs = bridge.tokenizer("dog", "runs")["input_ids"]
    ours = [*bridge.opening, *one, *[2] * count, *other, 2]
    assert [int(bridge.tokenizer_ids[number]) for number in ours] == theirs


def test_a_tokenizer_without_a_separator_is_refused(tmp_path):
    assert {"gpt2", "t5"} <= set(FAMILIES)
    bridge = TokenizerBridge(str(make_tokenizer(tmp_path / "gpt2", "gpt2")))
    with pytest.raises(InputError, match=r"by the symbol that ends one, but has \[\] between them"):
        separators_of(bridge)


def test_labels_are_those_of_training_in_their_order():
    bridge = TokenizerBridge(str(minilm()))
    pairs = [Example(("a", "b"), (label,)) for label in ("neutral", "entailment", "neutral")]
    asked = asked_of(CLASSES, pairs, bridge)
    assert (asked.labels, asked.sentences, asked.word, asked.separators) == (("entailment", "neutral"), 2, False, 1)
    numbers = asked_of(VALUES, [Example(("a",), ("1.5",))], bridge)
    assert (numbers.labels, numbers.sentences, numbers.separators) == ((), 1, 0)
    word = asked_of(CLASSES, [Example(("a b",), (label,), ((0, 1),)) for label in "10"], bridge)
    assert word.word and word.labels == ("0", "1")
    with pytest.raises(InputError, match="should be of two classes at least, but all are 'neutral'"):
        asked_of(CLASSES, pairs[:1], bridge)


def test_the_description_comes_back(tmp_path):
    bridge = TokenizerBridge(str(minilm()))
    pairs = [Example(("a dog", "it runs"), (label,)) for label in ("yes", "no")]
    asked = asked_of(CLASSES, pairs, bridge)
    other = {"examples": 3, "sha256": "abc"}
    write_examples(tmp_path, {"train": pairs}, asked, bridge, "made", lambda: {"test": other}, lambda _: None)
    found, meta = read_asked(tmp_path)
    assert found == asked and meta["splits"]["test"] == other
    of = meta["splits"]["train"]
    names = ("first", "second", "first.pieces", "second.pieces", "answers")
    digests = {name: sha256_of_lines(read_lines(tmp_path / f"train.{name}")) for name in names}
    assert of == {"examples": 2, "sha256": digest_of_examples(pairs), "files": digests}
    assert found.tokenizer_sha256 == bridge.sha256 == meta["tokenizer_sha256"]
    assert read_lines(tmp_path / "train.second") == ["it runs"] * 2
    assert read_lines(tmp_path / "train.second.pieces") == ["it runs"] * 2
    assert read_lines(tmp_path / "train.answers") == ["yes", "no"] and not (tmp_path / "train.words").exists()
    described = json.loads((tmp_path / "meta.json").read_text())
    (tmp_path / "meta.json").write_text(json.dumps({**described, "labels": "yes"}))
    with pytest.raises(InputError, match="should have a list as 'labels'"):
        read_asked(tmp_path)
    for changes, said in (
        ({"sentences": 0}, "should have 1 or 2 as 'sentences', but has 0"),
        ({"separators": "1"}, "should have a count as 'separators', but has '1'"),
        ({"answers": "words"}, "should have classes or values or tags as 'answers', but has 'words'"),
        ({"splits": {"test": 3}}, "should have a table as split 'test', but has 3"),
        ({"splits": {"test": {"examples": 3}}}, "should have text as 'sha256', but has nothing"),
        ({"splits": {"test": {**other, "files": 3}}}, "should have a table as 'files', but has 3"),
    ):
        (tmp_path / "meta.json").write_text(json.dumps({**described, **changes}))
        with pytest.raises(InputError, match=said):
            read_asked(tmp_path)


def test_digests_tell_examples_apart():
    one = Example(("a", "b"), ("x",))
    others = [Example(("a", "c"), ("x",)), Example(("a", "b"), ("y",)), Example(("a b",), ("x",))]
    others.append(Example(("a", "b"), ("x",), ((0, 1),)))
    assert len({digest_of_examples([each]) for each in (one, *others)}) == 5


def test_first_piece_of_a_word_that_begins_where_another_ends():
    assert first_pieces([(0, 1), (1, 3), (3, 4)], [(0, 1), (1, 2), (2, 3), (3, 4)]) == [0, 1, 3]


@pytest.mark.parametrize("name", ["first", "second", "first.pieces", "second.pieces", "answers"])
def test_a_file_that_was_changed_is_refused(tmp_path, name):
    """As when a file of another split is copied over it: the number of lines says nothing then."""
    bridge = TokenizerBridge(str(minilm()))
    pairs = {split: [Example((f"{split} {n}", f"it {n}"), (label,)) for n, label in enumerate(labels)]
             for split, labels in (("train", ("yes", "no")), ("test", ("no", "yes")))}  # fmt: skip
    pairs["test"] = [Example((each.texts[0], "that"), each.answer) for each in pairs["test"]]
    asked = asked_of(CLASSES, pairs["train"], bridge)
    write_examples(tmp_path, pairs, asked, bridge, "made", dict, lambda _: None)
    splits = read_asked(tmp_path)[1]["splits"]
    for split in splits:
        check_unchanged(tmp_path, split, splits[split])
    shutil.copy(tmp_path / f"train.{name}", tmp_path / f"test.{name}")
    check_unchanged(tmp_path, "train", splits["train"])
    with pytest.raises(InputError, match=rf"test\.{name} should be as visual-grounding prepare wrote it, with the"):
        check_unchanged(tmp_path, "test", splits["test"])
    check_unchanged(tmp_path, "test", {name: of for name, of in splits["test"].items() if name != "files"})  # as before
    (tmp_path / f"test.{name}").unlink()
    with pytest.raises(InputError, match=rf"test\.{name} should be a file of examples, but isn't there"):
        check_unchanged(tmp_path, "test", splits["test"])
