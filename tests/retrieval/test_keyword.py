"""Keyword retrieval: worked by hand, a naive twin, resuming, and what is refused."""

import filecmp
import math
from collections import Counter

import numpy as np
import pytest
from conftest import write_store

from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval import topic_table
from visual_grounding.retrieval.finder import write_image_ids
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.keyword import KeywordFinder
from visual_grounding.retrieval.topic_table import TopicTable, content_words
from visual_grounding.text.stop_words import ENGLISH, read_stop_words


def make_store(folder, images):
    return FeatureStore(write_store(folder, np.ones((images, 1, 2))))


def retrieve_keyword(captions, store, sentences, out, count=8, exclude_keys=None, stop_words=ENGLISH, shard_size=None):
    return write_image_ids(KeywordFinder(captions, store, count, stop_words), sentences, out, exclude_keys, shard_size)


def naive_keyword(captions, keys, sentence, count, excluded, stop_words):
    """Zhang et al.'s Algorithm 1 and the search after it, with lists and dictionaries."""
    split = [(keys.index(key) if key in keys else None, content_words(text, stop_words)) for key, text in captions]
    with_word = Counter(word for _, words in split for word in set(words))

    def topics(words):
        ti = {x: words.count(x) / len(words) * math.log(len(split) / (1 + with_word[x])) for x in words}
        places = {x: words.index(x) for x in words}
        return sorted(places, key=lambda x: (-round(ti[x], 9), places[x]))[:8]

    table = {}
    for row, words in split:
        for word in topics(words):
            if row is not None:
                table.setdefault(word, set()).add(row)
    gathered = [
        row
        for word in topics([word for word in content_words(sentence, stop_words) if word in table])
        for row in sorted(table[word])
        if row != excluded
    ]
    times = Counter(gathered)  # in the order of first appearance
    best = sorted(times, key=lambda row: -times[row])[:count]
    return best, [times[row] for row in best]


def test_keyword_retrieval_agrees_with_an_example_worked_by_hand(tmp_path):
    # Rows: image0 .. image3. G = 5 captions. Captions with: dog 3, ball 2, cat 1, snow 1, sofa 1.
    # TI of a word that occurs once: dog log(5/4), ball log(5/3), cat, snow and sofa log(5/2).
    # Table: dog 0 1 3, ball 1 2, cat 2, snow 3, sofa 2 (of its second caption).
    lines = "image0.jpg\tA dog.\nimage1.jpg\tThe dog has a ball\nimage2.jpg\tA cat with a ball\n"
    (tmp_path / "c.tsv").write_text(lines + "image3.jpg\tdog, snow\nimage2.jpg\ta sofa\n")
    sentences = [
        "The dog and its ball",  # ball first: 1 2, then dog: 0 1 3. Image 1 twice; then by appearance 2, 0, 3
        "Dog!",  # 0 1 3
        "a cat, a dog, snow, more snow",  # snow twice: 3; cat: 2; dog: 0 1 3. Image 3 twice; then 2, 0, 1
        "It is the one.",  # stop words only
        "",
        "zebra on the sofa",  # zebra isn't in the table
    ]
    counts = retrieve_keyword(tmp_path / "c.tsv", make_store(tmp_path / "store", 5), sentences, tmp_path / "ids", 3)
    table = ImageIds(tmp_path / "ids")
    expected = [[1, 2, 0], [0, 1, 3], [3, 2, 0], [-1, -1, -1], [-1, -1, -1], [2, -1, -1]]
    assert table.ids.tolist() == expected
    assert table.scores.tolist() == [[2, 1, 1], [1, 1, 1], [2, 1, 1], [0, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert counts == table.counts
    assert counts == {"empty": 1, "no_topic": 1, "short": 1, "captions": 5, "unknown_captions": 0}


@pytest.mark.parametrize("seed", range(4))
def test_keyword_retrieval_agrees_with_its_naive_twin(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(topic_table, "_CAPTIONS", 7)
    monkeypatch.setattr(topic_table, "_PAIRS", 16)
    rng = np.random.default_rng(seed)
    vocabulary = [f"w{chr(97 + n)}" for n in range(14)] + ["the"]
    rarely = np.arange(1, 16) ** -1.0

    def text():
        return " ".join(rng.choice(vocabulary, rng.integers(1, 14), p=rarely / rarely.sum()))

    keys = [f"image{row}.jpg" for row in range(12)]
    captions = [(f"image{rng.integers(0, 15)}.jpg", text()) for _ in range(40)]  # 12, 13, 14 aren't in the store
    (tmp_path / "c.tsv").write_text("".join(f"{key}\t{caption}\n" for key, caption in captions))
    sentences = [text() for _ in range(30)]
    exclude = [f"image{rng.integers(0, 15)}.jpg" for _ in sentences]
    store = make_store(tmp_path / "store", 12)
    counts = retrieve_keyword(tmp_path / "c.tsv", store, sentences, tmp_path / "ids", 5, exclude, shard_size=4)
    table = ImageIds(tmp_path / "ids")
    for number, sentence in enumerate(sentences):
        excluded = keys.index(exclude[number]) if exclude[number] in keys else None
        rows, times = naive_keyword(captions, keys, sentence, 5, excluded, ENGLISH)
        assert table.ids[number].tolist() == rows + [-1] * (5 - len(rows))
        assert table.scores[number].tolist() == times + [0] * (5 - len(rows))
    assert counts["unknown_captions"] == sum(key not in keys for key, _ in captions)
    assert counts["unknown_excluded"] == sum(key not in keys for key in exclude)
    whole = {"store": store, "sentences": sentences, "count": 5, "shard_size": 4}
    _check_resuming(tmp_path, monkeypatch, whole, exclude)


def _check_resuming(tmp_path, monkeypatch, whole, exclude):
    search, calls = TopicTable.search, []

    def stop_at_the_tenth(*arguments):
        calls.append(1)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return search(*arguments)

    monkeypatch.setattr(TopicTable, "search", stop_at_the_tenth)
    with pytest.raises(KeyboardInterrupt):
        retrieve_keyword(tmp_path / "c.tsv", out=tmp_path / "again", exclude_keys=exclude, **whole)
    retrieve_keyword(tmp_path / "c.tsv", out=tmp_path / "again", exclude_keys=exclude, **whole)
    assert len(calls) < 10 + 30  # finished shards weren't searched again
    for name in ("ids.npy", "scores.npy", "meta.json"):
        assert filecmp.cmp(tmp_path / "again" / name, tmp_path / "ids" / name, shallow=False)
    assert not (tmp_path / "again.partial").exists()


def test_keyword_retrieval_with_other_stop_words(tmp_path):
    (tmp_path / "c.tsv").write_text("image0.jpg\tder Hund\nimage1.jpg\tder Ball\n", encoding="utf-8")
    (tmp_path / "stop").write_text("Der\ndie\n")
    assert read_stop_words(tmp_path / "stop") == {"der", "die"}
    store = make_store(tmp_path / "store", 2)
    retrieve_keyword(tmp_path / "c.tsv", store, ["Der Ball"], tmp_path / "with", 2)
    words = read_stop_words(tmp_path / "stop")
    retrieve_keyword(tmp_path / "c.tsv", store, ["Der Ball"], tmp_path / "without", 2, stop_words=words)
    assert ImageIds(tmp_path / "with").ids.tolist() == [[1, 0]]
    assert ImageIds(tmp_path / "without").ids.tolist() == [[1, -1]]


def test_keyword_retrieval_refuses_captions_of_another_collection_and_broken_ones(tmp_path):
    store = make_store(tmp_path / "store", 2)
    (tmp_path / "c.tsv").write_text("other.jpg\ta dog\n")
    with pytest.raises(InputError, match=r"has none of them, such as 'other.jpg'; the store's are like 'image0.jpg'"):
        retrieve_keyword(tmp_path / "c.tsv", store, ["dog"], tmp_path / "ids")
    (tmp_path / "d.tsv").write_text("image0.jpg\ta dog\nimage0.jpg a dog\n")
    with pytest.raises(InputError, match=r"d.tsv:2 should be `key<TAB>caption`, but is 'image0.jpg a dog'"):
        retrieve_keyword(tmp_path / "d.tsv", store, ["dog"], tmp_path / "ids-d")
    with pytest.raises(InputError, match=r"nowhere.tsv can't be read: No such file"):
        retrieve_keyword(tmp_path / "nowhere.tsv", store, ["dog"], tmp_path / "ids-e")
    with pytest.raises(InputError, match=r"one key for each of the 1 sentences, but there are 2 lines"):
        retrieve_keyword(tmp_path / "c.tsv", store, ["dog"], tmp_path / "ids-f", exclude_keys=["a", "b"])


def test_keyword_retrieval_of_nothing_but_stop_words_finds_nothing(tmp_path):
    (tmp_path / "c.tsv").write_text("image0.jpg\tit is the one\n")
    counts = retrieve_keyword(tmp_path / "c.tsv", make_store(tmp_path / "store", 1), ["dog"], tmp_path / "ids", 1)
    assert ImageIds(tmp_path / "ids").ids.tolist() == [[-1]] and counts["no_topic"] == 1


def test_what_a_finder_looks_up_in_is_gone_behind_it(tmp_path):
    (tmp_path / "c.tsv").write_text("image0.jpg\tA dog runs.\nimage1.jpg\tA cat.\n")
    finder = KeywordFinder(tmp_path / "c.tsv", make_store(tmp_path / "store", 2), 2, ENGLISH)
    with finder.working_in(tmp_path / "scratch"):
        assert any((tmp_path / "scratch").iterdir())
    assert not (tmp_path / "scratch").exists()


def test_images_that_could_not_be_read_are_never_found(tmp_path, caplog):
    """Another one takes their place, and a table that was begun with other features isn't gone on with."""
    (tmp_path / "c.tsv").write_text("image0.jpg\tdog ball\nimage1.jpg\tdog\nimage2.jpg\tcat ball\nimage3.jpg\tcat\n")
    features = np.ones((4, 1, 2))
    features[0] = 0
    store = FeatureStore(write_store(tmp_path / "store", features))
    finder = KeywordFinder(tmp_path / "c.tsv", store, 2)
    counts = write_image_ids(finder, ["dog ball"], tmp_path / "ids")
    assert sorted(ImageIds(tmp_path / "ids").ids[0].tolist()) == [1, 2] and counts["absent_captions"] == 1
    said = "1 of 4 captions (25.0 %) are of images without features; they aren't used."
    assert said in list(finder.warnings(counts, 1))
    sound = FeatureStore(write_store(tmp_path / "sound", np.ones((4, 1, 2))))
    sound.has_absent = False  # as a store says that was made by a command
    assert finder.plan != KeywordFinder(tmp_path / "c.tsv", sound, 2).plan
    none = FeatureStore(write_store(tmp_path / "none", np.zeros((4, 1, 2))))
    with pytest.raises(InputError, match=r"but has none of them.* 4 captions are of images without features\."):
        write_image_ids(KeywordFinder(tmp_path / "c.tsv", none, 2), ["dog"], tmp_path / "no")
