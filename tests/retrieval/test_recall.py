"""Recall and median rank: worked by hand, a naive twin, and the place that search gives."""

import numpy as np
import torch
from torch.nn import functional

from visual_grounding.retrieval.recall import recall_summary, retrieval_ranks, token_recall_summary
from visual_grounding.retrieval.search import exact_search


def naive_rank(scores: list[float], answers: set[int]) -> int:
    """Place of the first right answer in a stable sort."""
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    return next(place for place, candidate in enumerate(order, 1) if candidate in answers)


def test_recall_summary_agrees_with_an_example_worked_by_hand() -> None:
    images = torch.eye(3)
    # sentence 0 (image 0) finds it first; sentence 1 (image 0) is nearest to image 1, then 0; sentence 2 (image 2)
    # scores 0.3, 0.3, 0.1: its image is last. Image 1 has no sentence: a distractor.
    text = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.5, 0.0], [0.3, 0.3, 0.1]])
    summary = recall_summary(text, images, torch.tensor([0, 0, 2]))
    # text to image: ranks 1, 2, 3. Image 0: sentences score 0.9, 0.4, 0.3, its first caption first: rank 1.
    # Image 2: 0, 0, 0.1: rank 1.
    assert summary == {
        "text_to_image_r1": 1 / 3, "text_to_image_r5": 1.0, "text_to_image_r10": 1.0, "text_to_image_median_rank": 2.0,
        "image_to_text_r1": 1.0, "image_to_text_r5": 1.0, "image_to_text_r10": 1.0, "image_to_text_median_rank": 1.0,
        "recall_sum": 1 / 3 + 5,
    }  # fmt: skip


def test_retrieval_ranks_agree_with_their_naive_twin_when_scores_are_tied() -> None:
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(-2, 3, (40, 3), generator=generator).float()
    images = torch.randint(-2, 3, (12, 3), generator=generator).float()
    gold = torch.randint(0, 10, (40,), generator=generator)
    text[(text == 0).all(dim=1)] = 1.0  # what is absent has its own test
    images[(images == 0).all(dim=1)] = 1.0
    scores = (text @ images.T).tolist()
    text_ranks, image_ranks = retrieval_ranks(text, images, gold, chunk=7)
    assert text_ranks.tolist() == [naive_rank(scores[s], {int(gold[s])}) for s in range(40)]
    described = sorted(set(gold.tolist()))
    columns = (images @ text.T).tolist()
    assert image_ranks.tolist() == [naive_rank(columns[i], {s for s in range(40) if gold[s] == i}) for i in described]


def test_rank_is_the_place_at_which_exact_search_returns_the_image() -> None:
    generator = torch.Generator().manual_seed(1)
    text = functional.normalize(torch.randn(30, 4, generator=generator), dim=1)
    images = functional.normalize(torch.randn(9, 4, generator=generator), dim=1)
    images[5] = 0  # absent: never returned, so behind the eight others
    gold = torch.randint(0, 9, (30,), generator=generator)
    ids = exact_search(text, images, 9)[1]
    found = ids == gold.unsqueeze(1)
    places = torch.where(found.any(dim=1), found.int().argmax(dim=1) + 1, 9)
    assert (gold == 5).any() and (text @ images.T < 0).any()
    assert np.array_equal(retrieval_ranks(text, images, gold)[0], places.numpy())


def test_absent_image_and_empty_sentence_find_nothing_and_are_behind_all_others() -> None:
    images = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # the first is absent
    text = torch.tensor([[-1.0, 0.0], [0.0, 0.0], [-0.5, -1.0]])  # the second is empty
    # Sentence 0 describes image 1, whose cosine −1 is behind image 2's 0, but before the absent one: rank 2. The empty
    # one finds nothing: rank 3 + 1. Sentence 2 describes the absent image: rank 3.
    text_ranks, image_ranks = retrieval_ranks(text, images, torch.tensor([1, 2, 0]))
    assert text_ranks.tolist() == [2, 4, 3]
    # The absent image finds nothing: rank 3 + 1. Image 1: its sentence scores −1, the other −0.5: rank 2, the empty one
    # behind both. Image 2 has only the empty sentence: rank 3.
    assert image_ranks.tolist() == [4, 2, 3]


def test_recall_is_zero_and_not_perfect_when_embeddings_are_not_numbers() -> None:
    nothing = torch.full((20, 2), float("nan"))
    assert recall_summary(nothing, nothing, torch.arange(20))["recall_sum"] == 0.0


def test_token_recall_agrees_with_an_example_worked_by_hand() -> None:
    images = torch.eye(3)
    # Sentence 0 (image 0): its first token finds image 0 first; its second scores 0.1, 0.5, 0.4 and finds it last.
    # Sentence 1 (image 2): a single token, 0.2, 0.1, 0.9: first. What is 0 is no token: three queries, ranks 1, 3, 1.
    # The paper's code would call the ranks 0, 2, 0.
    tokens = torch.tensor([[[0.9, 0.1, 0.0], [0.1, 0.5, 0.4]], [[0.2, 0.1, 0.9], [0.0, 0.0, 0.0]]])
    assert token_recall_summary(tokens, images, torch.tensor([0, 2])) == {
        "token_to_image_r1": 2 / 3,
        "token_to_image_r5": 1.0,
        "token_to_image_r10": 1.0,
        "token_to_image_median_rank": 1.0,
    }


def test_token_recall_is_that_of_every_token_as_a_sentence_of_its_own() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = functional.normalize(torch.randn(30, 6, 4, generator=generator), dim=2)
    lengths = torch.randint(0, 7, (30,), generator=generator)
    tokens[torch.arange(6) >= lengths.unsqueeze(1)] = 0.0
    images = functional.normalize(torch.randn(15, 4, generator=generator), dim=1)
    images[3] = 0.0  # absent: a token of its sentences is behind all others
    own = torch.randint(0, 15, (30,), generator=generator)
    alone = torch.cat([tokens[sentence, :length] for sentence, length in enumerate(lengths.tolist())])
    expected = recall_summary(alone, images, own.repeat_interleave(lengths))
    found = token_recall_summary(tokens, images, own)
    assert found == {name.replace("text_", "token_"): expected[name.replace("token_", "text_")] for name in found}
    assert token_recall_summary(torch.zeros(2, 3, 4), images, own[:2])["token_to_image_r10"] == 0.0
