"""Pieces are those that the tokenizer makes of a line as a whole, and windows tile them sentence by sentence."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import AWKWARD, FAMILIES, SENTENCES, make_tokenizer

from visual_grounding.errors import InputError
from visual_grounding.text.sentences import sentence_starts
from visual_grounding.text.tokenizer_bridge import composed
from visual_grounding.vokenization.cutting import Cutter, equal_parts

LINES = [*SENTENCES, *AWKWARD, "A dog runs. It's red!  Two birds  sit on the roof. Really? Yes", "   "]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {family: make_tokenizer(tmp_path_factory.mktemp(family), family) for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_cut_text_has_the_pieces_of_whole_lines(folders, family):
    cutter = Cutter(str(folders[family]))
    found = cutter.cut(LINES)
    numbers = cutter.bridge.numbers_of(LINES)
    assert found.numbers.tolist() == [number for line in numbers for number in line]
    assert found.lengths.tolist() == [len(line) for line in numbers] and len(found) == found.lengths.sum()
    assert found.tokens.decode().split("\n") == [*(cutter.bridge.line_of(line) for line in numbers), ""]
    assert found.counts["empty"] == sum(not line for line in numbers) > 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("window", [1, 3, 126])
def test_windows_tile_the_pieces_and_never_cross_a_line(folders, family, window):
    found = Cutter(str(folders[family]), window=window).cut(LINES)
    assert found.starts.tolist() == [0, *np.cumsum(found.sizes)[:-1]] and found.sizes.sum() == len(found)
    assert found.sizes.min() >= 1 and found.sizes.max() <= window
    line = np.repeat(np.arange(len(LINES)), found.lengths)
    assert (line[found.starts] == line[found.starts + found.sizes - 1]).all()
    assert (np.diff(found.sentences) >= 0).all() and found.counts["sentences"] == found.sentences[-1] + 1
    assert found.counts["windowed"] == sum(np.bincount(found.sentences) > 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_piece_is_read_with_its_own_sentence(folders, family):
    line = LINES[-2]
    cutter = Cutter(str(folders[family]))
    found = cutter.cut([line])
    begins = sentence_starts(line)
    of_piece = np.repeat(found.sentences, found.sizes)
    for (start, stop), sentence in zip(cutter.bridge.spans_of([line])[0], of_piece):
        if stop > start:  # white space alone is of either
            assert begins[sentence] <= start and (sentence + 1 == len(begins) or stop <= begins[sentence + 1])
    assert len(set(of_piece)) == 5


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_text_is_cut_as_the_tokenizer_does(folders, texts):
    for folder in folders.values():
        cutter = Cutter(str(folder), window=2)
        found = cutter.cut(texts)
        assert found.numbers.tolist() == [number for line in cutter.bridge.numbers_of(texts) for number in line]
        assert found.sizes.sum() == len(found)


def test_a_line_of_a_million_letters_is_cut(folders):
    cutter = Cutter(str(folders["wordpiece"]))
    found = cutter.cut(["A dog runs. " * 90_000])
    assert len(found) == 90_000 * len(cutter.bridge.numbers_of(["A dog runs."])[0])
    assert found.counts["sentences"] == 90_000


def test_cutter_goes_into_another_process(folders):
    cutter = Cutter(str(folders["bytes"]), "de", 7)
    again = pickle.loads(pickle.dumps(cutter))
    assert (again.language, again.window) == ("de", 7)
    assert again.cut(LINES).tokens == cutter.cut(LINES).tokens


def test_text_is_composed_before_it_is_cut(folders):
    cutter = Cutter(str(folders["bytes"]))
    assert cutter.cut(["u\u0308"]).tokens == cutter.cut([composed("u\u0308")]).tokens == cutter.cut(["\u00fc"]).tokens


@pytest.mark.parametrize(
    ("window", "message"), [(0, "at least 1 piece, but has 0"), (10**9, r"at most the \d+ pieces")]
)
def test_windows_of_an_impossible_size_are_refused(folders, window, message):
    with pytest.raises(InputError, match=message):
        Cutter(str(folders["wordpiece"]), window=window)


@pytest.mark.parametrize("language", ["german", "", "e", "EN", "de-", "../de"])
def test_what_is_no_code_of_a_language_is_refused(folders, language):
    with pytest.raises(InputError, match="the language should be an ISO 639 code, such as de, but is") as refused:
        Cutter(str(folders["wordpiece"]), language)
    assert refused.value.choices == ("language",)
    for known in ("de", "zh-hans", "pt_BR", "yue"):
        Cutter(str(folders["wordpiece"]), known)


def test_equal_parts_are_as_few_and_as_equal_as_can_be():
    assert equal_parts(0, 126, 126) == [(0, 126)]
    assert equal_parts(5, 132, 126) == [(5, 64), (69, 63)]


@pytest.mark.parametrize("family", ["wordpiece", "bytes"])
def test_a_sentence_ends_where_no_space_follows(folders, family):
    cutter = Cutter(str(folders[family]))
    text = cutter.cut(["A dog runs?Birds sit"])
    assert text.counts["sentences"] == 2
    assert text.sizes[0] == len(cutter.bridge.numbers_of(["A dog runs?"])[0])


def test_language_decides_what_an_abbreviation_is(folders):
    counts = [Cutter(str(folders["wordpiece"]), each).cut(["Am 3. Mai war es."]).counts for each in ("en", "de")]
    assert [count["sentences"] for count in counts] == [2, 1]


def test_the_longest_window_is_taken(folders):
    longest = Cutter(str(folders["wordpiece"])).bridge.max_pieces
    assert Cutter(str(folders["wordpiece"]), window=longest).window == longest
    with pytest.raises(InputError, match=f"at most the {longest} pieces"):
        Cutter(str(folders["wordpiece"]), window=longest + 1)
