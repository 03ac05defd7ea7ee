"""Batches of labelled examples: separators, cuts, targets; and what is refused of a folder."""

import os

import numpy as np
import pytest
from fairseq.data import Dictionary
from small_examples import make_world

from visual_grounding.data.labelled_examples import ExampleBatches, Examples, cut_pair, ragged, read_examples
from visual_grounding.errors import InputError
from visual_grounding.text.example_files import Asked, read_asked
from visual_grounding.text.labelled_text import CLASSES, TAGS, VALUES

PAIR = Asked(CLASSES, ("no", "yes"), 2, False, 2)
WORD = Asked(CLASSES, ("no", "yes"), 1, True, 0)
TAGGED = Asked(TAGS, ("B-X", "O"), 1, False, 0)


def batches(asked, pieces, targets, positions=None, room=20, shuffle=False):
    found = Examples([ragged(side) for side in pieces], targets, None if positions is None else ragged(positions))
    return ExampleBatches(found, asked, Dictionary(), room, shuffle)


def whole(dataset):
    return dataset.collater([dataset[index] for index in range(len(dataset))])


def test_two_sentences_stand_in_one_row():
    made = batches(PAIR, [[[5, 6], [7]], [[8], [9, 10]]], np.array([1, 0]))
    batch = whole(made)
    assert batch["net_input"]["src_tokens"].tolist() == [[5, 6, 2, 2, 8, 2], [7, 2, 2, 9, 10, 2]]
    assert batch["target"].tolist() == [1, 0] and batch["ntokens"] == 12 and batch["nsentences"] == 2
    assert "word_positions" not in batch["net_input"] and made.sizes.tolist() == [6, 6]


def test_padding_is_on_the_right_and_values_stay_numbers():
    asked = Asked(VALUES, (), 1, False, 0)
    batch = whole(batches(asked, [[[5, 6, 7], []]], np.array([2.5, 1.0], dtype=np.float32)))
    assert batch["net_input"]["src_tokens"].tolist() == [[5, 6, 7, 2], [2, 1, 1, 1]]
    assert batch["net_input"]["src_lengths"].tolist() == [4, 1] and batch["target"].tolist() == [2.5, 1.0]


@pytest.mark.parametrize(("first", "second"), [(0, 9), (9, 0), (5, 5), (9, 9), (4, 9), (9, 4), (3, 3)])
@pytest.mark.parametrize("room", [7, 8])
def test_the_longer_sentence_is_cut_first(first, second, room):
    a, b = first, second
    while a + b > room:  # a naive twin; of equals the first is cut
        a, b = (a - 1, b) if a >= b and not (a == b and room % 2) else (a, b - 1)
    found = cut_pair(first, second, room)
    assert sum(found) == min(first + second, room) and abs(found[0] - a) <= 1 and abs(found[1] - b) <= 1
    assert found[0] <= first and found[1] <= second


def test_a_cut_pair_keeps_its_separators():
    made = batches(PAIR, [[[5, 6, 7, 8, 9]], [[10, 11, 12]]], np.array([0]), room=8)
    assert whole(made)["net_input"]["src_tokens"].tolist() == [[5, 6, 2, 2, 10, 11, 12, 2]]
    assert made.sizes.tolist() == [8] and made.whole_sizes.tolist() == [11]


@pytest.mark.parametrize("place", range(10))
def test_a_judged_word_is_never_cut(place):
    made = batches(WORD, [[list(range(5, 15))]], np.array([1]), [[place]], room=5)
    net_input = whole(made)["net_input"]
    row = net_input["src_tokens"][0].tolist()
    assert len(row) == 5 and row[-1] == 2 and row[net_input["word_positions"][0]] == 5 + place
    assert row[:4] == list(range(row[0], row[0] + 4))
    assert int(net_input["word_positions"][0]) == {0: 0, 1: 1, 8: 2, 9: 3}.get(
        place, 2
    )  # in the middle where it can be


def test_a_judged_word_without_a_piece_has_none():
    for room in (5, 20):
        made = batches(WORD, [[list(range(5, 15))]], np.array([1]), [[-1]], room=room)
        assert whole(made)["net_input"]["word_positions"].tolist() == [-1]


def test_tags_behind_the_cut_have_no_piece_but_count():
    made = batches(TAGGED, [[[5, 6, 7, 8], [9]]], ragged([[0, 1, -1], [1]]), [[0, 2, 3], [0]], room=4)
    batch = whole(made)
    assert batch["net_input"]["src_tokens"].tolist() == [[5, 6, 7, 2], [9, 2, 1, 1]]
    assert batch["net_input"]["word_positions"].tolist() == [[0, 2, -1], [0, -1, -1]]
    assert batch["target"].tolist() == [[0, 1, -1], [1, -3, -3]]


def test_lengths_stand_together_and_training_is_shuffled():
    pieces = [[[5] * (1 + n % 2) for n in range(40)]]
    fixed = batches(WORD, pieces, np.zeros(40, dtype=np.int64), [[0]] * 40)
    assert fixed.ordered_indices().tolist() == [*range(0, 40, 2), *range(1, 40, 2)]
    np.random.seed(1)
    shuffled = batches(WORD, pieces, np.zeros(40, dtype=np.int64), [[0]] * 40, shuffle=True).ordered_indices()
    assert sorted(shuffled[:20].tolist()) == list(range(0, 40, 2)) and shuffled[:20].tolist() != list(range(0, 40, 2))


@pytest.fixture
def world(tmp_path):
    return make_world(tmp_path)


def read(world, name, split="valid"):
    asked, _ = read_asked(world / name)
    return read_examples(world / name, split, asked, Dictionary.load(str(world / name / "dict.txt"))), asked


def test_folders_are_read(world):
    pairs, asked = read(world, "pairs")
    assert len(pairs) == 12 and len(pairs.pieces) == 2 and asked.labels == ("other", "red")
    values, _ = read(world, "values")
    assert values.targets.dtype == np.float32 and set(values.targets) <= {0, 1, 2}
    tags, asked = read(world, "tags")
    assert (tags.positions.lengths == tags.targets.lengths).all() and len(asked.labels) == 7


def swap(line, text):
    """Another first line."""
    return f"{line}\n{text.partition(chr(10))[2]}"


@pytest.mark.parametrize(
    ("name", "file", "change", "message"),
    [
        ("pairs", "valid.second.pieces", lambda text: text + "a\n", "second.pieces should have 12 lines, .* has 13"),
        ("pairs", "valid.answers", lambda text: text.split("\n", 1)[1], r"answers should have 12 lines, .* but has 11"),
        ("pairs", "valid.first.pieces", lambda text: "zebra\n" + text, "pieces:1 should hold pieces .* has 'zebra'"),
        ("values", "valid.answers", lambda text: swap("x", text), "answers should hold numbers, but"),
        ("words", "valid.words", lambda text: text + "0\n", "words should have 12 lines"),
        ("words", "valid.words", lambda text: swap(str(len(text)), text), "words:1 should hold the number of a piece"),
        ("words", "valid.words", lambda text: swap("0 0", text), "words:1 should hold the number of a piece"),
        ("tags", "valid.words", lambda text: swap("x", text), "words should hold numbers, but"),
        ("tags", "valid.words", lambda text: swap("-2", text), r"words:1 should hold numbers of pieces"),
        ("tags", "valid.answers", lambda text: swap("O", text), "answers should have a tag for each word"),
        ("words", "valid.words", lambda text: swap("9" * 12, text), "words should hold numbers, but"),
        ("values", "valid.answers", lambda text: swap("nan", text), "answers:1 should hold a number, but has nan"),
        ("values", "valid.answers", lambda text: swap("1e999", text), "answers:1 should hold a number, but has 1e999"),
        ("pairs", "meta.json", lambda text: text.replace('"red"', '["red"]'), "should have names as labels"),
    ],
)  # fmt: skip
def test_a_folder_that_was_changed_is_refused(world, name, file, change, message):
    path = world / name / file
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=message):
        read(world, name)


@pytest.mark.parametrize("file", ["valid.first.pieces", "valid.answers", "valid.words"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(world, file):
    (world / "words" / file).unlink()
    os.mkfifo(world / "words" / file)
    with pytest.raises(InputError, match="is a pipe or a device, not a file"):
        read(world, "words")


def test_answers_that_training_does_not_know_have_no_number(world):
    path = world / "pairs/valid.answers"
    path.write_text("strange\n" + path.read_text().split("\n", 1)[1])
    assert read(world, "pairs")[0].targets[0] == -1
