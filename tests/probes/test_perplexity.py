"""Models that are compared are asked the same words: whose masks, and who sees them."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from small_grounded import make_task, make_world, model_flags

from visual_grounding.errors import InputError
from visual_grounding.probes.perplexity import ask_alike, lines_of, tell_hidden
from visual_grounding.probes.trained import Trained


@pytest.fixture
def world(tmp_path):
    return make_world(tmp_path)


def split_of(world, **flags):
    task = make_task(world, **flags)
    task.load_dataset("valid")
    return task.dataset("valid")


def hidden(dataset):
    lines = lines_of(dataset)
    return [lines[row]["hidden"].tolist() for row in range(len(lines))]


def test_the_first_ones_masks_are_asked_of_all_and_seen_by_finders(world):
    """A finder is asked with the items of its lines: what is hidden there has to be what is asked."""
    first, second = split_of(world, mask_prob=0.4), split_of(world, images=False, mask_prob=0.8)
    before = hidden(first)
    assert hidden(second) != before
    chosen = ask_alike([first, second], "valid")
    assert chosen is lines_of(first) and hidden(first) == hidden(second) == before
    batch = second.collater([second[row] for row in range(3)])
    assert batch["hidden_words"].sum(dim=1).tolist() == [sum(row) for row in before[:3]]


def test_masks_that_images_were_found_with_go_first_and_must_agree(world):
    first, second, third = (split_of(world) for _ in range(3))

    def given(seed):
        return lambda row: np.random.default_rng([seed, row]).random(int(lines_of(first).sizes[row]) - 1) < 0.5

    lines_of(second).given = given(1)
    assert ask_alike([first, second], "valid") is lines_of(second) and hidden(first) == hidden(second)
    lines_of(first).given, lines_of(third).given = None, given(2)
    with pytest.raises(InputError, match=r"found with the same mask, but \d+ of 12 lines of valid differ"):
        ask_alike([first, second, third], "valid")


def test_other_lines_are_refused(world):
    first, second = split_of(world, images=False), split_of(world, images=False, data=str(world / "text"))
    with pytest.raises(InputError, match="both models should be asked the same lines, but valid is of other ones"):
        ask_alike([first, second], "valid")
    with pytest.raises(InputError, match="both models should be asked the same lines"):
        ask_alike([first, split_of(world, images=False, max_pieces=4)], "valid")


def test_what_each_line_took_is_summed_over_its_words(world):
    torch.manual_seed(0)
    task = make_task(world, mask_prob=0.5)
    task.load_dataset("valid")
    dataset, model = task.dataset("valid"), task.build_model(model_flags(world)).eval()
    trained = Trained(Path("none.pt"), model, task, "grounded_albert", torch.device("cpu"))
    told = tell_hidden(trained, dataset, 5, lambda lines: None)
    assert told.words.max() > 1 and told.words.tolist() == [sum(row) for row in hidden(dataset)]
    for row in range(len(dataset)):
        batch = dataset.collater([dataset[row]])
        tokens, asked = batch["net_input"]["src_tokens"], batch["hidden_words"]
        with torch.no_grad():
            states = model.word_states(tokens, asked, batch["net_input"].get("visual"), task.mask)
            chances = (states @ model.encoder.text.words.T + model.word_head.bias).log_softmax(dim=1)
        bits = sum(-chances[place, word].item() / math.log(2) for place, word in enumerate(tokens[asked].tolist()))
        assert told.bits[row] == pytest.approx(bits, rel=1e-4)
