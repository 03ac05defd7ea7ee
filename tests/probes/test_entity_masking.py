"""Words of a split that are hidden from a translator."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from small_tokenizers import make_tokenizer
from small_trained import ANIMALS

from visual_grounding.data.pretrained_pieces import dictionary_of
from visual_grounding.errors import InputError
from visual_grounding.probes import entity_masking as probe
from visual_grounding.probes.trained import Trained, load_split, load_trained
from visual_grounding.storage.lines import read_lines
from visual_grounding.text.tokenizer_bridge import TokenizerBridge
from visual_grounding.text.word_positions import NO_WORD

POSITIONS = [{1}] * 24


@pytest.fixture
def seeing(animals: Path) -> Trained:
    return load_trained(animals / "seeing.pt", "grounded_translation", torch.device("cpu"), {})


def dictionary(*symbols: str) -> Dictionary:
    found = Dictionary()
    for symbol in symbols:
        found.add_symbol(symbol)
    return found


def split_of(words: Dictionary, lines: Sequence[str]) -> tuple[Any, list[dict[str, torch.Tensor]]]:
    """As much of a trained model as reading its sources needs, and the split."""
    trained = SimpleNamespace(task=SimpleNamespace(source_dictionary=words), path="model.pt")
    return trained, [{"source": words.encode_line(line, add_if_not_exist=False).long()} for line in lines]


def test_mask_is_what_the_dictionary_has() -> None:
    words = dictionary("a", "[MASK]")
    assert probe.mask_of(words, "model.pt") == words.index("[MASK]") == 5
    assert probe.mask_of(dictionary("<mask>", "[MASK]"), "model.pt") == 4
    with pytest.raises(InputError, match=r"model.pt should have <mask> or \[MASK\] .* among its 5 symbols") as refused:
        probe.mask_of(dictionary("mask"), "model.pt")
    assert refused.value.choices == ("checkpoint",)


def test_words_are_found_in_a_split_of_subwords_with_unknown_ones() -> None:
    words = dictionary("a", "tenn@@", "is", "ball", ".")
    trained, dataset = split_of(words, ["a tenn@@ is ball .", "a zz@@ is ball .", ""])
    found = probe.read_sources(trained, dataset, ["A tennis ball .", "a zzis ball .", ""], "test.en")
    assert found.words == {0: [0, 1, 1, 2, 3, NO_WORD], 1: [0, 1, 1, 2, 3, NO_WORD], 2: [NO_WORD]}
    assert found.tokens[0] == [4, 5, 6, 7, 8, 2]
    masked = probe.masked_sources(found, [0, 1], [{1, 3}, {0}, set()], "mask", 99)
    assert masked == {0: [4, 99, 7, 99, 2], 1: [99, 3, 6, 7, 8, 2]}
    removed = probe.masked_sources(found, [0, 1], [{1, 3}, {0}, set()], "remove", 99)
    assert removed == {0: [4, 7, 2], 1: [3, 6, 7, 8, 2]}
    assert probe.masked_sources(found, [2], [{1}], "unmasked", 99) == {2: [2]}


@pytest.mark.parametrize("family", ["wordpiece", "bytes", "unigram"])
def test_words_are_found_in_the_pieces_of_a_pretrained_tokenizer(family: str, tmp_path: Path) -> None:
    bridge = TokenizerBridge(str(make_tokenizer(tmp_path / family, family)))
    lines = ["the dog's ball", "Die Hündin läuft über die Straße ."]
    trained, dataset = split_of(
        dictionary_of(bridge), [bridge.line_of(numbers) for numbers in bridge.numbers_of(lines)]
    )
    found = probe.read_sources(trained, dataset, lines, "test.en", bridge)
    for row, line in enumerate(lines):
        assert sorted({*found.words[row]} - {NO_WORD}) == list(range(len(line.split())))
        for number, word in enumerate(line.split()):  # each word's pieces are those of its letters
            pieces = [token for token, owner in zip(found.tokens[row], found.words[row]) if owner == number]
            assert bridge.text_of(bridge.line_of(pieces)).strip().casefold().replace(" ", "") in (
                word.casefold(), bridge.text_of(bridge.line_of(bridge.numbers_of([word])[0])).replace(" ", ""),
            ) or "<unk>" in bridge.line_of(pieces)  # fmt: skip
    assert probe.mask_of(dictionary_of(bridge), "m") == bridge.symbols.index("<mask>")


def test_a_text_of_other_sentences_is_refused() -> None:
    words = dictionary("a", "dog", "cat")
    trained, dataset = split_of(words, ["a dog", "a cat"] * 10 + ["a"])
    lines = ["a dog", "a cat"] * 10
    with pytest.raises(InputError, match=r"test.en should have the 21 sentences of the split, .* but has 20 lines"):
        probe.read_sources(trained, dataset, lines, "test.en")
    one_other = probe.read_sources(trained, dataset, [*lines, "b"], "test.en")
    assert sorted(one_other.words) == list(range(20)) and len(one_other.tokens) == 21
    message = r"of its 21 lines 2 have other letters, the first is line 20: 'a cow', which the split has as 'a cat'"
    with pytest.raises(InputError, match=message) as refused:
        probe.read_sources(trained, dataset, [*lines[:-1], "a cow", "b"], "test.en")
    assert refused.value.choices == ("text", "bpe_tokenizer")


def test_hidden_words_are_counted() -> None:
    found = probe.hidden_words(["a Dog runs", "a dog", "a cat"], [0, 1], [{1, 2}, {1}, {1}])
    assert found == {"dog": 2, "runs": 1}


@pytest.mark.parametrize("left_pad", [True, False])
def test_replaced_sources_are_padded_as_the_task_does(seeing: Trained, left_pad: bool) -> None:
    seeing.settings.left_pad_source = left_pad
    dataset = load_split(seeing, "test")
    batch = dataset.collater([dataset[row] for row in range(6)])
    same = probe.replace_source(seeing, batch, [dataset[row]["source"].tolist() for row in batch["id"].tolist()])
    assert torch.equal(same["net_input"]["src_tokens"], batch["net_input"]["src_tokens"])
    assert torch.equal(same["net_input"]["src_lengths"], batch["net_input"]["src_lengths"])
    assert same["net_input"]["visual"] is batch["net_input"]["visual"]
    short = probe.replace_source(seeing, batch, [[5, 2]] * 5 + [[2]])
    assert short["net_input"]["src_tokens"][5].tolist() == ([1, 2] if left_pad else [2, 1])
    assert short["net_input"]["src_lengths"].tolist() == [2] * 5 + [1]


def test_whole_sources_are_translated_as_fairseq_does_and_masked_ones_by_the_picture(
    seeing: Trained, animals: Path
) -> None:
    dataset = load_split(seeing, "test")
    lines = read_lines(animals / "text/test.words")
    sources = probe.read_sources(seeing, dataset, lines, "test.words")
    mask = probe.mask_of(seeing.task.source_dictionary, "seeing.pt")
    rows = list(range(24))
    found = {}
    for source in probe.SOURCES:
        tokens = probe.masked_sources(sources, rows, POSITIONS, source, mask)
        found[source] = probe.translate(seeing, dataset, tokens, "test", 5, beam=2)
        assert list(found[source]) == rows
    batch = dataset.collater([dataset[row] for row in rows])
    generator = seeing.task.build_generator([seeing.model], SimpleNamespace(beam=2))
    best = [each[0]["tokens"] for each in seeing.task.inference_step(generator, [seeing.model], batch)]
    expected = {row: seeing.task.target_dictionary.string(tokens) for row, tokens in zip(batch["id"].tolist(), best)}
    assert found["unmasked"] == {row: expected[row] for row in rows}
    assert found["mask"] != found["remove"]
    right = [text.split()[0] == ("Hund", "Katze")[row % 2] for row, text in found["mask"].items()]
    assert all(right) and all(ANIMALS[row % 2] in line for row, line in enumerate(lines))


def test_references_are_those_of_the_split(seeing: Trained, animals: Path) -> None:
    dataset = load_split(seeing, "test")
    references = read_lines(animals / "text/test.de")
    assert not list(probe.check_references(seeing, dataset, references, "test.de", "test"))
    some = [*references[:-3], "x", "y", "z"]
    (warning,) = probe.check_references(seeing, dataset, some, "test.de", "test")
    assert warning.startswith("3 of 24 sentences of test.de (12.5 %) are others, the first is line 22: 'x', where the")
    with pytest.raises(InputError, match=r"test.de should have one reference for each of the 24 .* but has 23"):
        list(probe.check_references(seeing, dataset, references[1:], "test.de", "test"))
    others = ["Pferd ."] * 24
    message = rf"24 of 24 sentences \(100.0 %\) are others, the first is line 1: 'Pferd .', .* has '{references[0]}'"
    with pytest.raises(InputError, match=message):
        list(probe.check_references(seeing, dataset, others, "test.de", "test"))


def test_targets_are_written_by_the_tokenizer_that_made_their_pieces(tmp_path: Path) -> None:
    bridge = TokenizerBridge(str(make_tokenizer(tmp_path / "bytes", "bytes")))
    (line,) = (bridge.line_of(numbers) for numbers in bridge.numbers_of(["Die Hündin läuft"]))
    assert probe.writer_of(dictionary_of(bridge), bridge)(line) == "Die Hündin läuft"
    for words, with_bridge in ((dictionary("a"), bridge), (dictionary_of(bridge), None)):
        assert probe.writer_of(words, with_bridge)("Hün@@ din") == "Hündin"
