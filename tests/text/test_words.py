"""Words and vocabularies: the splitter, and agreement with fairseq's Dictionary."""

import os
from pathlib import Path

import pytest

from visual_grounding.errors import InputError
from visual_grounding.text.words import (
    PAD,
    UNKNOWN,
    Vocabulary,
    WordTokenizer,
    check_same_words,
    count_words,
    digest_of_symbols,
    split_words,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ein Mann läßt 3,5 Bälle fallen.", ["ein", "mann", "läßt", "3", ",", "5", "bälle", "fallen", "."]),
        ("<unk> </s>", ["<", "unk", ">", "<", "/", "s", ">"]),  # text can't name a special symbol
        ("हिन्दी में!", ["हिन्दी", "में", "!"]),  # vowel signs and virama belong to their word
        ("cafe\u0301s", ["caf\u00e9s"]),  # one code point or two: the same word
        (" \t\u00a0 ", []),
        ("", []),
    ],
)
def test_split_words_gives_lower_cased_words_and_single_marks(text: str, words: list[str]) -> None:
    assert split_words(text) == words


def test_vocabulary_numbers_words_as_fairseqs_dictionary_does(tmp_path: Path) -> None:
    from fairseq.data import Dictionary

    counted = count_words(["a dog and a cat", "a cat"])
    path = tmp_path / "dict.txt"
    path.write_text("".join(f"{word} {count}\n" for word, count in counted), encoding="utf-8")
    dictionary, vocabulary = Dictionary.load(str(path)), Vocabulary.load(path)
    assert len(vocabulary) == len(dictionary) == 8
    assert vocabulary.encode("A cat, a zebra") == [dictionary.index(word) for word in ["a", "cat", ",", "a", "zebra"]]
    assert (dictionary.pad(), dictionary.unk()) == (PAD, UNKNOWN)
    assert vocabulary.symbols == dictionary.symbols


def test_vocabulary_refuses_a_line_without_count(tmp_path: Path) -> None:
    path = tmp_path / "dict.txt"
    path.write_text("dog 3\ncat\n")
    with pytest.raises(InputError, match=r"dict.txt:2 should be `word count`, but is 'cat'"):
        Vocabulary.load(path)


def test_word_tokenizer_cuts_long_sentences_and_counts_them() -> None:
    tokenizer = WordTokenizer(Vocabulary(["a", "b"]), max_tokens=2)
    assert tokenizer.encode(["a b a", "b", "", "a b"]) == ([[4, 5], [5], [], [4, 5]], 1)


def test_word_tokenizer_counts_the_words_that_it_knows() -> None:
    tokenizer = WordTokenizer(Vocabulary(["a", "dog", ".", "2"]))
    # a dog . -> 2 words of 2; der hund . -> 0 of 2; a zebra, ? -> a, zebra and two unknown marks; ". ." is no word
    tokens, _ = tokenizer.encode(["A dog.", "Der Hund.", "a zebra, ?", ". .", "", "2"])
    words, known = tokenizer.count_known(tokens)
    assert (words.tolist(), known.tolist()) == ([2, 2, 4, 0, 0, 1], [2, 0, 1, 0, 0, 1])
    assert [counted.shape for counted in tokenizer.count_known([])] == [(0,), (0,)]


def test_word_tokenizer_comes_back_from_its_folder(tmp_path: Path) -> None:
    WordTokenizer(Vocabulary(["ä", ".", "b"])).save(tmp_path)
    assert Vocabulary.load(tmp_path / "dict.txt").words == ["ä", ".", "b"]


def test_same_words_in_another_order_are_refused_with_both_digests() -> None:
    own, learned = digest_of_symbols(["a", "b"]), digest_of_symbols(["b", "a"])
    check_same_words("dict.txt", own, digest_of_symbols(iter(["a", "b"])), "c.pt")
    with pytest.raises(
        InputError, match=f"dict.txt should have the words that c.pt .* is {own}, of theirs {learned}"
    ) as e:
        check_same_words("dict.txt", own, learned, "c.pt")
    assert e.value.choices == ("data",)
    assert digest_of_symbols(["ab"]) != own


def test_a_pipe_is_no_dictionary(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dict.txt")
    with pytest.raises(InputError, match=r"dict.txt .*pipe"):
        Vocabulary.load(tmp_path / "dict.txt")
