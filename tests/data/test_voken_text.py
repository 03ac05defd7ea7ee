"""Pieces by their place, and what is said where vokens are of another text."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, indexed_dataset
from small_voken_lm import LINES, binarise_vokens, make_voken_world
from small_vokens import write_vokens

from visual_grounding import InputError
from visual_grounding.data.voken_text import VokenText
from visual_grounding.vokenization.vokens import Vokens


@pytest.fixture(scope="module")
def world(voken_world: Path) -> Path:
    return voken_world


def opened(bin_folder: Path, vokens: Path | None = None, split: str = "train") -> VokenText:
    symbols = Dictionary.load(str(bin_folder / "dict.txt")).symbols
    text = indexed_dataset.make_dataset(str(bin_folder / split), "mmap")
    return VokenText(text, f"bin/{split}", symbols, None if vokens is None else Vokens(vokens))


def all_pieces(vokens: Path) -> list[str]:
    return (vokens / "tokens.txt").read_text(encoding="utf-8").split()


def test_pieces_and_vokens_of_any_range_are_those_of_the_artefact(world):
    symbols = Dictionary.load(str(world / "bin/dict.txt")).symbols
    pieces, vokens = all_pieces(world / "vokens/train"), np.load(world / "vokens/train/vokens.npy")
    offsets = np.load(world / "vokens/train/offsets.npy")
    starts = set(offsets[:-1].tolist())
    text, alone = opened(world / "bin", world / "vokens/train"), opened(world / "bin")
    assert text.pieces == alone.pieces == len(pieces) and (np.diff(offsets) == 0).any()
    np.testing.assert_array_equal(text.offsets, alone.offsets)
    for start in range(len(pieces)):
        for end in {start + 1, min(start + 9, len(pieces)), len(pieces)}:
            for each in (text, alone):
                assert [symbols[number] for number in each.numbers(start, end)] == pieces[start:end]
            np.testing.assert_array_equal(text.vokens_at(start, end), vokens[start:end])
            assert text.begins(start, end).tolist() == [place in starts for place in range(start, end)]
    with pytest.raises(ValueError, match="bin/train is text without vokens"):
        alone.vokens_at(0, 1)


def test_another_process_opens_the_files_itself(world):
    text = opened(world / "bin", world / "vokens/train")
    sent = pickle.dumps(text)
    assert text.vokens.vokens.tobytes() not in sent and text.offsets.tobytes() not in sent
    again = pickle.loads(sent)
    np.testing.assert_array_equal(again.numbers(5, 30), text.numbers(5, 30))
    np.testing.assert_array_equal(again.vokens_at(5, 30), text.vokens_at(5, 30))
    alone = pickle.loads(pickle.dumps(opened(world / "bin")))
    np.testing.assert_array_equal(alone.numbers(5, 30), text.numbers(5, 30))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (LINES["train"][:-1], "bin/train has 15 lines, but vokens in {} are of 14. They belong to the pieces beside"),
        (
            [*LINES["train"][:3], "the ball", *LINES["train"][4:]],
            "bin/train has 12 pieces in line 4, but vokens in {} are of 7. They belong to the pieces beside them; bin",
        ),
        (
            ["A dog runs!", *LINES["train"][1:]],
            "the pieces of {}/tokens.txt, but line 1 is 'a dog run ##s .' in one and 'a dog run ##s !' in the other",
        ),
        ([*LINES["train"][:-1], "runs dogging"], "but line 15 is 'run ##s run"),
    ],
)
def test_vokens_of_another_text_are_refused_with_the_line(world, tmp_path, lines, message):
    folder = write_vokens(tmp_path / "other", lines, world / "tokenizer")
    with pytest.raises(InputError, match=re.escape(message.format(folder))):
        opened(world / "bin", folder)


def test_same_sizes_are_compared_at_places_all_over_a_long_text(tmp_path, monkeypatch):
    """Three places of 60 bytes here, of lines of 12 bytes: 15 of 200 lines are compared."""
    from visual_grounding.data import voken_text
    from visual_grounding.text.spread_lines import spread_lines

    monkeypatch.setattr(voken_text, "spread_lines", lambda path: spread_lines(path, 3, 60))
    make_voken_world(tmp_path)
    lines = ["dog dog dog"] * 200
    binarise_vokens(write_vokens(tmp_path / "own", lines, tmp_path / "tokenizer"), tmp_path / "text/train")
    compared = {*range(5), *range(98, 103), *range(195, 200)}
    for changed in (0, 4, 5, 97, 98, 102, 103, 194, 195, 199):
        seen = changed in compared
        other = [*lines[:changed], "dog a dog", *lines[changed + 1 :]]
        folder = write_vokens(tmp_path / f"other{changed}", other, tmp_path / "tokenizer")
        if seen:
            with pytest.raises(InputError, match=rf"line {changed + 1} is 'dog dog dog' in one and 'dog a dog' in the"):
                opened(tmp_path / "text", folder)
        else:
            opened(tmp_path / "text", folder)


def test_text_without_pieces_or_without_ends_is_refused(world, tmp_path):
    def written(lines: list[list[int]]) -> VokenText:
        (tmp_path / "dict.txt").write_text("a 1\n")
        builder = indexed_dataset.make_builder(str(tmp_path / "train.bin"), "mmap", 5)
        for line in lines:
            builder.add_item(torch.tensor(line, dtype=torch.long))
        builder.finalize(str(tmp_path / "train.idx"))
        return opened(tmp_path)

    with pytest.raises(InputError, match="bin/train should have pieces, but has none in 2 lines"):
        written([[2], [2]])
    with pytest.raises(InputError, match=r"should end each line with </s>, .* but line 2 has nothing at all"):
        written([[4, 2], []])
    assert written([[4, 2], [2]]).pieces == 1
