"""One fixed mask for a text: its share, its place in the table, and that what it hides isn't asked for."""

import filecmp
import json

import numpy as np
import pytest
from conftest import write_store
from small_tokenizers import SENTENCES, make_tokenizer, minilm

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.retrieval.image_ids import ImageIds, TableMask
from visual_grounding.retrieval.masked_queries import mask_queries
from visual_grounding.text.masked_words import WordsOfPieces
from visual_grounding.text.tokenizer_bridge import TokenizerBridge
from visual_grounding.text.words import digest_of_symbols

LINES = [*SENTENCES, "", "runs"]


@pytest.fixture(scope="module")
def bridge(tmp_path_factory):
    return TokenizerBridge(str(make_tokenizer(tmp_path_factory.mktemp("t") / "wordpiece", "wordpiece")))


def test_pieces_are_hidden_with_the_same_probability(bridge):
    found = mask_queries(bridge, ["a dog " * 500] * 20, 0.15, 1, max_pieces=1002)
    bits = np.unpackbits(found.mask, axis=1, count=int(found.pieces[0]))
    assert bits.sum() / bits.size == pytest.approx(0.15, abs=4 * (0.15 * 0.85 / bits.size) ** 0.5)
    assert len({row.tobytes() for row in bits}) == 20  # each line its own


def test_the_mask_depends_on_seed_and_place_alone(bridge):
    found = mask_queries(bridge, LINES, 0.3, 1)
    again = mask_queries(bridge, [*LINES[:2], "A dog sits."], 0.3, 1)
    assert found.queries[:2] == again.queries[:2]
    assert mask_queries(bridge, LINES, 0.3, 2).queries != found.queries
    assert found.pieces.tolist() == [len(numbers) for numbers in bridge.numbers_of(LINES)]
    assert found.queries[LINES.index("")] == ""


def test_what_a_model_does_not_read_of_a_line_is_neither_hidden_nor_asked_for(bridge):
    """A word that is hidden and stands again behind the cut doesn't lead to its image."""
    found = mask_queries(bridge, ["a " * 90 + "dog", "dog " * 30, "a dog"], 0.5, 1, max_pieces=22)
    assert found.mask.shape == (3, 3) and found.pieces.tolist() == [91, 30, 2]
    table = TableMask(found.pieces, found.mask, "", 0.5, 22)
    assert len(table.hidden(0)) == 91 and table.hidden(0)[:20].any() and not table.hidden(0)[20:].any()
    assert found.queries[0].split() == ["a"] * (20 - table.hidden(0).sum())
    assert mask_queries(bridge, ["a " * 70], 0.5, 1).mask.shape == (1, 8)  # 62 pieces and two symbols
    assert [table.tells_what_stands_behind(most) for most in (22, 23, 21, 3)] == [0, 0, 2, 3]
    whole = TableMask(found.pieces, found.mask, "", 0.5)  # of a table that doesn't say
    assert [whole.tells_what_stands_behind(most) for most in (4, 32, 31, 93, 92)] == [2, 1, 2, 0, 1]


def test_no_hidden_piece_is_asked_for(bridge):
    found = mask_queries(bridge, ["a dog runs"] * 200, 0.3, 1)
    numbers = bridge.numbers_of(["a dog runs"])[0]
    expected = {0: "a", 1: "dog"}
    assert bridge.line_of(numbers) == "a dog run ##s"
    for query, row in zip(found.queries, found.mask):
        hidden = np.unpackbits(row, count=4).astype(bool)
        left = [word for place, word in expected.items() if not hidden[place]] + ["runs"] * (not hidden[2:].any())
        assert query.split() == left
    assert len(set(found.queries)) == 8


@pytest.fixture
def world(tmp_path, bridge):
    """Photos of a dog and of a ball, and a text about both."""
    write_store(tmp_path / "store", np.ones((2, 1, 2)))
    (tmp_path / "captions.tsv").write_text("image0.jpg\tdog\nimage1.jpg\tball\n")
    (tmp_path / "text").write_text("a dog runs\n" * 60 + "a ball runs\n" * 60)
    return tmp_path


def retrieve(world, out, *flags, method="keyword"):
    words = ["retrieve", "--method", method, "--image-features", world / "store", "--out", world / out, *flags]
    words += ["--keys", world / "text"] if method == "paired" else ["--text", world / "text"]
    words += ["--captions", world / "captions.tsv", "-n", 1]
    return main(list(map(str, words)))


def test_a_table_keeps_the_mask_that_its_images_were_found_with(bridge, world, capsys):
    flags = ["--mask-prob", 0.3, "--mask-tokenizer", bridge.name]
    assert retrieve(world, "ids", *flags) == 0
    said = capsys.readouterr().out
    assert "mask:0.3|mask_seed:1" in said
    table, lines = ImageIds(world / "ids"), (world / "text").read_text().splitlines()
    assert table.mask.symbols_sha256 == digest_of_symbols(bridge.symbols) and table.mask.probability == 0.3
    expected = mask_queries(bridge, lines, 0.3, 1)
    for number, (line, numbers) in enumerate(zip(lines, bridge.numbers_of(lines))):
        hidden = table.mask.hidden(number)
        assert len(hidden) == len(numbers)
        thing = line.split()[1]
        asked = thing in expected.queries[number].split()
        assert asked == (not hidden[WordsOfPieces(bridge).words(np.array(numbers)) == 1].any())
        assert table.ids[number].tolist() == ([["dog", "ball"].index(thing)] if asked else [-1])
    assert 0.2 < (table.ids < 0).mean() < 0.6
    # The text is known by what it was before: a table of the whole text has the same digest, but other images.
    assert retrieve(world, "whole") == 0
    assert ImageIds(world / "whole").text_sha256 == table.text_sha256 and ImageIds(world / "whole").mask is None
    assert table.doubt(lines, "text") is None
    assert (ImageIds(world / "whole").ids >= 0).all()


def test_what_is_found_stays_the_same_where_hidden_words_are_replaced(world):
    """Words of one piece each by others, so that the pieces keep their places; of the kind that begins words."""
    bridge = TokenizerBridge(str(minilm()))
    flags = ["--mask-prob", 0.4, "--mask-tokenizer", bridge.name]
    lines = ["the dog and a ball", "a ball on the grass", "a dog", "a ball"] * 30
    others = {"dog": "ball", "ball": "dog", "grass": "dog", "the": "a", "a": "the", "and": "on", "on": "and"}
    assert all(len(numbers) == len(line.split()) for line, numbers in zip(lines, bridge.numbers_of(lines)))
    (world / "text").write_text("\n".join(lines) + "\n")
    assert retrieve(world, "ids", *flags) == 0
    table, replaced = ImageIds(world / "ids"), []
    for number, line in enumerate(lines):
        pairs = zip(line.split(), table.mask.hidden(number), strict=True)
        replaced.append(" ".join(others[word] if hidden else word for word, hidden in pairs))
    assert sum(line != other for line, other in zip(lines, replaced)) > 90
    (world / "text").write_text("\n".join(replaced) + "\n")
    assert retrieve(world, "again", *flags) == 0 and retrieve(world, "whole") == 0
    again, whole = ImageIds(world / "again"), ImageIds(world / "whole")
    for name in ("ids.npy", "scores.npy", "mask.npy", "pieces.npy"):
        assert filecmp.cmp(world / "ids" / name, world / "again" / name, shallow=False)
    assert again.text_sha256 != table.text_sha256 and not np.array_equal(whole.ids, table.ids)
    # What begins no word where a word began belongs to the word before it, which leaves the query, too.
    words, hidden = WordsOfPieces(bridge), np.array([False, True, False])
    ((a, dog), (_, s)) = bridge.numbers_of(["a dog", "dogfish"])
    assert words.without(np.array([a, dog, a]), hidden) == "a a" and words.without(np.array([a, s, a]), hidden) == "a"


def test_lines_that_a_mask_leaves_nothing_of_are_told_apart_from_empty_ones(bridge, world, capsys):
    (world / "text").write_text("dog\n" * 60 + "\n" * 2)
    assert retrieve(world, "ids", "--mask-prob", 0.5, "--mask-tokenizer", bridge.name) == 0
    hidden = sum(bool(ImageIds(world / "ids").mask.hidden(number).all()) for number in range(60))
    said = (
        f"{hidden} of 62 sentences ({hidden / 62 * 100:.1f} %) have no word that the mask leaves; they have no image."
    )
    empty = "2 of 62 sentences (3.2 %) are empty; they have no image."
    assert 15 < hidden < 45 and capsys.readouterr().err.splitlines() == [f"warning: {empty}", f"warning: {said}"]


def test_any_shards_make_the_same_table_and_another_mask_another(bridge, world):
    flags = ["--mask-prob", 0.3, "--mask-tokenizer", bridge.name]
    assert retrieve(world, "one", *flags) == 0 and retrieve(world, "several", *flags, "--shard-size", 7) == 0
    for name in ("ids.npy", "scores.npy", "mask.npy", "pieces.npy"):
        assert filecmp.cmp(world / "one" / name, world / "several" / name, shallow=False)
    assert retrieve(world, "one", *flags, "--mask-seed", 2) == 2
    assert retrieve(world, "one", *flags) == 0


def test_a_text_of_empty_lines_has_a_mask(bridge, world):
    (world / "text").write_text("\n\n")
    assert retrieve(world, "ids", "--mask-prob", 0.3, "--mask-tokenizer", bridge.name) == 0
    assert ImageIds(world / "ids").mask.hidden(1).tolist() == []
    assert mask_queries(bridge, ["", ""], 0.3, 0, max_pieces=64).mask.shape == (2, 1)


@pytest.mark.parametrize(
    ("flags", "method", "message"),
    [
        (["--mask-prob", 0.3], "keyword", "--mask-prob also needs --mask-tokenizer"),
        (["--mask-seed", 3], "keyword", "without --mask-prob --mask-seed would hide nothing: give it, too"),
        (["--mask-max-pieces", 9], "keyword", "without --mask-prob --mask-max-pieces would hide nothing: give it, too"),
        (
            ["--mask-prob", 0.3, "--mask-max-pieces", 2, "--mask-tokenizer", "T"],
            "keyword",
            "pieces of a line should be at least 3, for one between two symbols, but are 2. See --mask-max-pieces",
        ),
        (
            ["--mask-prob", 0, "--mask-tokenizer", "T"],
            "keyword",
            "should be between 0 and 1, but is 0.0. See --mask-prob",
        ),
        (["--mask-prob", 1, "--mask-tokenizer", "T"], "keyword", "should be between 0 and 1, but is 1.0"),
        (
            ["--mask-prob", 0.3, "--mask-seed", -1, "--mask-tokenizer", "T"],
            "keyword",
            "--mask-seed should be 0 or more, but is -1",
        ),
        (
            ["--mask-prob", 0.3, "--mask-tokenizer", "T"],
            "paired",
            "hides words of the text, which --method paired doesn't read",
        ),
    ],
)
def test_what_makes_no_mask_is_refused(bridge, world, capsys, flags, method, message):
    assert retrieve(world, "ids", *(bridge.name if flag == "T" else flag for flag in flags), method=method) == 2
    assert message in capsys.readouterr().err


def test_a_damaged_mask_is_told(bridge, world):
    assert retrieve(world, "ids", "--mask-prob", 0.3, "--mask-tokenizer", bridge.name) == 0
    meta = json.loads((world / "ids/meta.json").read_text())
    (world / "ids/meta.json").write_text(json.dumps({**meta, "mask_bytes": 7}))
    with pytest.raises(InputError, match=r"mask\.npy"):
        ImageIds(world / "ids")
