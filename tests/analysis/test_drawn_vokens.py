"""Pieces as a person reads them, and where their images are drawn."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_tokenizers import FAMILIES, make_tokenizer
from small_vokens import write_vokens

from visual_grounding.analysis import drawn_vokens
from visual_grounding.analysis.drawn_vokens import Piece, VokenLine, draw_line, lines_with_vokens, readable
from visual_grounding.analysis.report import ReportImage
from visual_grounding.errors import InputError
from visual_grounding.images.sources import open_images
from visual_grounding.text.tokenizer_bridge import TokenizerBridge
from visual_grounding.vokenization.vokens import Vokens

RED, BLUE = (200, 0, 0), (0, 0, 200)


@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_are_readable(tmp_path: Path, family: str) -> None:
    bridge = TokenizerBridge(str(make_tokenizer(tmp_path / family, family)))
    line = "A dog runs  狗\ufffd ."
    symbols = bridge.line_of(bridge.numbers_of([line])[0]).split()
    found = readable(bridge, symbols)
    assert len(found) == len(symbols)
    unknown = {"wordpiece": "[UNK]"}.get(family, "<unk>")
    assert found == {
        "wordpiece": ["a", "dog", "run", "##s", unknown, "."],
        "bytes": ["A", "d", "og", "run", "s", "␣", "␣", "狗", "·", "·", *["\ufffd"] * 3, "␣", "."],
        "gpt2": ["A", "d", "og", "run", "s", "␣", "␣", "狗", "·", "·", *["\ufffd"] * 3, "␣", "."],
    }.get(family, found)
    if family in ("unigram", "albert", "t5"):
        assert "dog" in found and "▁" not in "".join(found)
    assert readable(bridge, ["</s>", "nonsense"]) == ["</s>", "nonsense"] and readable(bridge, []) == []


def image(colour: tuple[int, int, int], score: float | None = None) -> ReportImage:
    return ReportImage(Image.new("RGB", (300, 100), colour), "key", score)


def test_image_is_drawn_below_its_piece_and_a_piece_without_one_has_an_empty_place() -> None:
    """Squares of 96, 8 pixels apart, below 8 + 20 pixels: the first from x 8 to 103, the third from 216 to 311."""
    line = VokenLine(0, "a b c", [Piece("a", image(RED)), Piece("b", None), Piece("c", image(BLUE))])
    drawn = np.asarray(draw_line(line))
    assert drawn.shape == (8 + 20 + 96 + 8, 8 + 3 * 104, 3)
    assert (drawn[28:124, 8:104] == RED).all() and (drawn[28:124, 216:312] == BLUE).all()
    assert (drawn[29:123, 113:207] == 255).all() and (drawn[28, 112:208] < 255).any()
    for left in (8, 112, 216):
        assert (drawn[8:28, left : left + 96] < 128).any()  # the piece
    assert (drawn[124:] == 255).all()  # no score


def test_scores_stand_below_and_what_is_not_there_is_a_grey_square() -> None:
    line = VokenLine(0, "a b", [Piece("a", image(RED, 0.25)), Piece("b", ReportImage(None, "x", 0.5, "not there"))])
    drawn = np.asarray(draw_line(line))
    assert (drawn[128:140, 8:104] < 200).any() and (drawn[128:140, 112:208] < 200).any()
    assert (drawn[30:40, 115:205] == (0xE9, 0xED, 0xF2)).all()


def test_long_sentences_wrap_and_long_pieces_have_the_room_that_they_need() -> None:
    drawn = draw_line(VokenLine(0, "", [Piece("a", image(RED)) for _ in range(5)]), width=330)
    assert drawn.size == (8 + 3 * 104, 2 * 124 + 8)
    pixels = np.asarray(drawn)
    assert (pixels[28:124, 216:312] == RED).all() and (pixels[152:248, 112:208] == RED).all()
    assert (pixels[152:248, 216:312] == 255).all()
    long = draw_line(VokenLine(0, "", [Piece("w" * 99, image(RED)), Piece("a", image(BLUE))]))
    assert 300 < long.width < 500
    red, blue = (np.flatnonzero((np.asarray(long) == colour).all(axis=-1).any(axis=0)) for colour in (RED, BLUE))
    assert abs(red.mean() - blue.min() / 2) <= 1  # below the middle of its piece, which ends 8 before the next
    assert draw_line(VokenLine(0, "", [])).height < 50


@pytest.fixture
def vokens(tmp_path: Path) -> Vokens:
    """Two lines and an empty one; the second piece has no voken."""
    lines = ["a dog runs", "", "a dog"]
    numbers = [[0, -1, 1, 1], [], [1, 2]]
    return Vokens(write_vokens(tmp_path / "v", lines, make_tokenizer(tmp_path / "t", "wordpiece"), 3, numbers))


def test_lines_have_the_images_of_their_vokens(vokens: Vokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    for key, colour in (("0.jpg", RED), ("1.jpg", BLUE)):
        Image.new("RGB", (8, 8), colour).save(tmp_path / "photos" / key)
    images = open_images(tmp_path / "photos")
    second, first = lines_with_vokens(vokens, [2, 0], images)
    assert (second.number, second.text, first.number, first.text) == (2, "a dog", 0, "a dog runs")
    assert [piece.text for piece in first.pieces] == ["a", "dog", "run", "##s"]
    keys = [[piece.image and (piece.image.key, piece.image.why) for piece in line.pieces] for line in (first, second)]
    assert keys == [[("0.jpg", ""), None, ("1.jpg", ""), ("1.jpg", "")], [("1.jpg", ""), ("2.jpg", "not there")]]
    assert all(piece.image is None or piece.image.score is None for piece in first.pieces)
    np.save(vokens.folder / "scores.npy", np.array([0.5, 0, 0.25, 0.125, 1, 2], dtype=np.float16))
    scored = lines_with_vokens(Vokens(vokens.folder), [0, 1], images)
    assert [piece.image and piece.image.score for piece in scored[0].pieces] == [0.5, None, 0.25, 0.125]
    assert scored[1] == VokenLine(1, "", [])
    monkeypatch.setattr(drawn_vokens, "MOST_PIECES", 2)
    (short,) = lines_with_vokens(vokens, [0], images)
    assert (len(short.pieces), short.more, short.text) == (2, 2, "a dog …")
    assert draw_line(short).width == 8 + 3 * 104


def test_vokens_beyond_the_candidates_are_refused(vokens: Vokens, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "photos/0.jpg")
    numbers = np.load(vokens.folder / "vokens.npy")
    numbers[2] = 3
    np.save(vokens.folder / "vokens.npy", numbers)
    broken, images = Vokens(vokens.folder), open_images(tmp_path / "photos")
    with pytest.raises(InputError, match=r"its 3 candidates, 0\.\.2, or -1 for none, but has 3 at 2"):
        lines_with_vokens(broken, [0], images)
    assert len(lines_with_vokens(broken, [2], images)) == 1
