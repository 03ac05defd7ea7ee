"""Text and captions mixed 1:1: which captions an epoch has, with their sizes and images, and that all come."""

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary

from visual_grounding.data.caption_mixture import CaptionMixture, ImagesOfMixture, draw_captions
from visual_grounding.data.grounded_text import MaskedLines
from visual_grounding.data.word_masking import Masking
from visual_grounding.modules.masking import MASK_ALONE

CAPTIONS, LINES, LONGEST = 7, 4, 5


def test_captions_are_drawn_evenly_over_draws_and_by_seed():
    drawn = draw_captions(7, 24, 1)
    assert sorted(np.bincount(drawn).tolist()) == [3, 3, 3, 3, 4, 4, 4] and len(drawn) == 24
    assert draw_captions(7, 24, 2).tolist() != drawn.tolist() == draw_captions(7, 24, 1).tolist()
    assert len({tuple(drawn[start : start + 7]) for start in (0, 7, 14)}) == 3  # each round in an order of its own
    draws = [draw_captions(50, size, 1, start) for start, size in ((0, 20), (20, 12), (32, 68))]
    assert np.concatenate(draws).tolist() == draw_captions(50, 100, 1).tolist()
    assert np.bincount(np.concatenate(draws)).tolist() == [2] * 50
    assert draw_captions(5, 0, 1, 3).tolist() == []


@pytest.fixture
def parts():
    """Lines of 1 to 4 pieces, captions of 2 to 8, of which the longest are cut."""
    dictionary = Dictionary()
    numbers = [dictionary.add_symbol(f"p{number}") for number in range(20)]
    ends = torch.tensor([dictionary.eos()])
    made = {}
    for name, count, shortest in (("lines", LINES, 1), ("captions", CAPTIONS, 2)):
        texts = [torch.cat([torch.tensor(numbers[n : n + n + shortest]), ends]) for n in range(count)]
        sizes = np.array(list(map(len, texts)))
        made[name] = MaskedLines(texts, sizes, dictionary, LONGEST, Masking(0.3, MASK_ALONE, 1))
    return made["lines"], made["captions"]


def test_items_are_lines_and_then_the_captions_of_the_epoch(parts):
    lines, captions = parts
    mixture = CaptionMixture(lines, captions, 1, [LINES], 0)
    assert mixture.changes and not mixture.can_reuse_epoch_itr_across_epochs and len(mixture) == 2 * LINES
    seen = []
    for epoch in (1, 2, 3):
        mixture.set_epoch(epoch)
        drawn = draw_captions(CAPTIONS, LINES, 1, LINES * (epoch - 1)).tolist()
        expected = [lines[n]["tokens"] for n in range(LINES)] + [captions[n]["tokens"] for n in drawn]
        items = [mixture[number] for number in range(2 * LINES)]
        assert all(torch.equal(item["tokens"], tokens) for item, tokens in zip(items, expected, strict=True))
        assert mixture.sizes.tolist() == list(map(len, expected)) and max(mixture.sizes) == LONGEST
        order = mixture.ordered_indices()
        assert sorted(order.tolist()) == list(range(2 * LINES)) and (np.diff(mixture.sizes[order]) >= 0).all()
        ids = np.arange(2 * CAPTIONS).reshape(CAPTIONS, 2).astype(np.int32)
        rows = ImagesOfMixture(mixture, ids).rows(np.array([5, 0, 7, 3]), [], epoch)
        assert rows.tolist() == [ids[drawn[1]].tolist(), [-1, -1], ids[drawn[3]].tolist(), [-1, -1]]
        seen += drawn
    assert sorted(seen[:CAPTIONS]) == list(range(CAPTIONS))


def test_folders_of_other_sizes_leave_no_caption_out(parts):
    """Of 4 and 3 lines: epochs 1, 3, 5 read the first folder and 2, 4 the second."""
    lines, captions = parts
    shorter = MaskedLines(lines.texts[:3], lines.sizes[:3], lines.dictionary, LONGEST, lines.masking)
    seen = []
    for epoch in range(1, 5):
        mixture = CaptionMixture((lines, shorter)[(epoch - 1) % 2], captions, 1, [4, 3], (epoch - 1) % 2)
        if epoch <= 2:
            assert mixture.drawn.tolist() == draw_captions(CAPTIONS, (4, 3)[epoch - 1], 1, (0, 4)[epoch - 1]).tolist()
        mixture.set_epoch(epoch)
        seen += mixture.drawn.tolist()
    assert np.bincount(seen).tolist() == [2] * CAPTIONS
