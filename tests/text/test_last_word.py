"""The last word of a sentence in pieces."""

import pytest

from visual_grounding.text.last_word import last_word


@pytest.mark.parametrize(
    ("line", "sentence", "word"),
    [
        ("a dog runs .", "a dog runs", "runs"),
        ("a dog runs", "a dog runs", "runs"),
        ("a dog pl@@ ay@@ s .", "a dog pl@@ ay@@ s", "pl@@ ay@@ s"),
        ('he said " no ! "', 'he said " no', "no"),
        ("in the U.@@ S@@ .", "in the U.@@ S@@ .", "U.@@ S@@ ."),  # the full stop is the word's own
        ("a dog runs .@@ .", "a dog runs", "runs"),
        ("▁a ▁do g ▁plays .", "▁a ▁do g ▁plays", "▁plays"),
        ("▁a ▁play s ▁. ▁!", "▁a ▁play s", "▁play s"),
        ("▁a ▁ Straße ?", "▁a ▁ Straße", "▁ Straße"),  # a mark by itself
        ("a tennis ##ball .", "a tennis ##ball", "tennis ##ball"),
        ("at 3", "at 3", "3"),
        ("a <unk>", "a <unk>", "<unk>"),
        ("dog", "dog", "dog"),
        ("a dog &quot; .", "a dog", "dog"),
        ("a dog &@@ quot@@ ; .", "a dog", "dog"),
    ],
)
def test_last_word_is_found_before_what_closes_the_sentence(line: str, sentence: str, word: str) -> None:
    pieces = line.split()
    found = last_word(pieces)
    assert found is not None
    assert " ".join(pieces[: found.stop]) == sentence and " ".join(pieces[found]) == word


@pytest.mark.parametrize("line", ["", ".", '" . !', "▁.", "@@ .", "&quot; ."])
def test_a_sentence_of_punctuation_has_no_last_word(line: str) -> None:
    assert last_word(line.split()) is None
