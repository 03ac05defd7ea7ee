"""The last words of pairs, masked and predicted."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary

from visual_grounding.errors import InputError
from visual_grounding.probes.last_word import MASKED, Pair, guess, masked_item, pairs_of, text_of, words_of
from visual_grounding.probes.trained import Trained, load_split, load_trained
from visual_grounding.text.tokenizer_bridge import MASK


@pytest.fixture
def trained(last_words: Path) -> Trained:
    return load_trained(last_words / "vtlm.pt", "visual_tlm", torch.device("cpu"), {})


def lines(last_words: Path, language: str) -> list[list[str]]:
    return [line.split() for line in (last_words / f"text/test.{language}").read_text(encoding="utf-8").splitlines()]


def test_pairs_lose_what_closes_them_and_keep_their_last_words(trained: Trained, last_words: Path) -> None:
    found, left_out = pairs_of(trained, load_split(trained, "test"))
    dictionary = trained.task.dictionary
    assert {name: len(pairs) for name, pairs in found.items()} == {"en-de": 12, "en-fr": 12}
    assert left_out == {"without a word": 0, "last word unknown": 0}
    assert [pair.row for pair in found["en-fr"]] == list(range(12, 24))
    for name, pairs in found.items():
        for place, pair in enumerate(pairs):
            for side, language in enumerate(name.split("-")):
                pieces = lines(last_words, language)[place]
                kept = [piece for piece in pieces if piece not in (".", "!", "&quot;")]
                symbols = [dictionary[token] for token in pair.sentences[side]]
                assert symbols == [*kept, "</s>"]
                word = " ".join(kept).replace("@@ ", "").split()[-1]
                assert words_of(trained, pair)[side] == "".join(symbols[pair.words[side]]).replace("@@", "") == word
    assert {"Fledermaus", "souris"} <= {words_of(trained, pair)[1] for pairs in found.values() for pair in pairs}


def test_pairs_without_a_word_or_with_an_unknown_one_are_left_out(trained: Trained) -> None:
    dataset = load_split(trained, "test")
    dictionary, text = trained.task.dictionary, text_of(dataset)
    original, changed = text.sentences, {0: ". </s>", 3: "a <unk> </s>", 5: "<unk> a </s>"}

    def sentences(row: int) -> Any:
        (source, target), languages = original(row)
        if row in changed:
            target = torch.tensor([dictionary.index(symbol) for symbol in changed[row].split()])
        return (source, target), languages

    text.sentences = sentences
    found, left_out = pairs_of(trained, dataset)
    assert left_out == {"without a word": 1, "last word unknown": 1}
    assert [pair.row for pair in found["en-de"]] == [1, 2, 4, *range(5, 12)]


def test_byte_level_pieces_are_refused() -> None:
    dictionary = Dictionary()
    for word in ("Ġa", "Ġb", "Ġc", "d"):
        dictionary.add_symbol(word)
    task = SimpleNamespace(source_dictionary=dictionary, stream_languages=["en"])
    with pytest.raises(InputError, match=r"but 3 of 8 pieces \(37.5 %\) of the dictionary begin with Ġ") as refused:
        pairs_of(SimpleNamespace(task=task), [])  # type: ignore[arg-type]
    assert refused.value.choices == ("checkpoint",)


def test_every_piece_of_a_last_word_has_a_mask() -> None:
    """Source: a b | cut in two: c@@ d. Languages 1 and 0; eos 2, pad 1."""
    dictionary = Dictionary()
    for word in ("a", "b", "c@@", "d", MASK):
        dictionary.add_symbol(word)
    mask = dictionary.index(MASK)
    pair = Pair(7, (np.array([4, 6, 7, 2]), np.array([5, 2])), (slice(1, 3), slice(0, 1)), (1, 0))
    item = masked_item(pair, "both", dictionary)
    assert item["tokens"].tolist() == [2, 4, mask, mask, 2, 2, mask, 2]
    assert item["word_targets"].tolist() == [1, 1, 6, 7, 1, 1, 5, 1]
    assert item["positions"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert item["languages"].tolist() == [1] * 5 + [0] * 3 and item["id"] == 7
    assert masked_item(pair, "source", dictionary)["tokens"].tolist() == [2, 4, mask, mask, 2, 2, 5, 2]
    assert masked_item(pair, "target", dictionary)["word_targets"].tolist() == [1] * 6 + [5, 1]
    assert pair.sentences[0].tolist() == [4, 6, 7, 2]  # as it was


@pytest.mark.parametrize("masked", MASKED)
def test_guesses_are_those_of_one_pair_at_a_time(trained: Trained, masked: str) -> None:
    """The naive twin: a pair alone, no batch, no padding, its regions taken from the store."""
    dataset = load_split(trained, "test")
    found, _ = pairs_of(trained, dataset)
    every = [pair for pairs in found.values() for pair in pairs]
    told: list[int] = []
    guesses = guess(trained, dataset, every, masked, "test", 5, told.append)
    assert list(guesses) == (["source", "target"] if masked == "both" else [masked]) and sum(told) == len(every)
    store, ids = trained.task.image_store, np.load(Path(trained.settings.image_ids) / "test.en-de/ids.npy")
    mask, eos = trained.task.dictionary.index(MASK), trained.task.dictionary.eos()
    right = {name: [] for name in guesses}
    for pair in every:
        features, absent = store.gather(ids[[pair.row % 12]])
        visual = {"features": torch.from_numpy(features), "padding_mask": torch.from_numpy(absent)}
        visual["boxes"] = torch.from_numpy(store.gather_columns(ids[[pair.row % 12]])["boxes"])
        tokens, positions, languages, answers = [], [], [], []
        for side, name in enumerate(("source", "target")):
            sentence = pair.sentences[side].tolist()
            for place in range(pair.words[side].start, pair.words[side].stop) if name in guesses else ():
                answers.append((name, len(tokens) + 1 + place, sentence[place]))
                sentence[place] = mask
            tokens += [eos, *sentence]
            positions += range(len(sentence) + 1)
            languages += [pair.languages[side]] * (len(sentence) + 1)
        stream = [torch.tensor([each]) for each in (tokens, positions, languages)]
        with torch.no_grad():
            logits, _ = trained.model(*stream, visual)
        for name in guesses:
            right[name].append([int(logits[place].argmax()) == token for at, place, token in answers if at == name])
    for name, each in guesses.items():
        assert each.right.tolist() == [all(pieces) for pieces in right[name]]
        assert each.pieces_right.tolist() == [sum(pieces) for pieces in right[name]]
        assert each.pieces.tolist() == [len(pieces) for pieces in right[name]]
    if masked != "source":
        assert (guesses["target"].pieces > 1).any() and guesses["target"].pieces_right.any()


def test_training_data_are_read_without_the_masks_of_training(trained: Trained) -> None:
    """Regions are shown as they are: random ones, as in training, would be another question each time."""
    trained.settings.train_subset = "test"
    dataset = load_split(trained, "test")
    found, _ = pairs_of(trained, dataset)
    results = []
    for epoch in (1, 2):
        dataset.set_epoch(epoch)
        results.append(guess(trained, dataset, found["en-de"], "both", "test", 12)["target"].pieces_right.tolist())
    assert results[0] == results[1]


def test_labels_of_regions_are_not_shown(trained: Trained) -> None:
    """They would name what is on the picture; in pre-training they are only predicted."""
    dataset = load_split(trained, "test")
    found, _ = pairs_of(trained, dataset)
    seen: list[set[str]] = []

    def remember(_: object, inputs: object, named: dict[str, Any]) -> None:
        seen.append(set(named["visual"]))

    trained.model.register_forward_pre_hook(remember, with_kwargs=True)
    guess(trained, dataset, found["en-de"], "source", "test", 6)
    assert len(seen) == 2 and all("boxes" in each and "labels" not in each for each in seen)


def test_a_sentence_that_is_too_long_is_refused(trained: Trained) -> None:
    dataset = load_split(trained, "test")
    found, _ = pairs_of(trained, dataset)
    trained.model.encoder.max_source_positions = 5
    with pytest.raises(InputError, match=r"at most 5 tokens a sentence, but \d+ of 12 sentences of test have more"):
        guess(trained, dataset, found["en-de"], "source", "test", 4)
