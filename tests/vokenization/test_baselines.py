"""What is drawn at random follows the equation, and is the same again for the same seed."""

import math

import numpy as np
import pytest
from small_tokenizers import make_tokenizer

from visual_grounding.errors import InputError
from visual_grounding.vokenization.baselines import RandomVokenizer, TermFrequencyVokenizer
from visual_grounding.vokenization.candidates import Candidates
from visual_grounding.vokenization.cutting import Cutter

CANDIDATES = Candidates(np.arange(3), ["x.jpg", "y.jpg", "z.jpg"])


@pytest.fixture(scope="module")
def cutter(tmp_path_factory):
    return Cutter(str(make_tokenizer(tmp_path_factory.mktemp("wordpiece"), "wordpiece")))


def term_frequency(cutter, captions, **options):
    return TermFrequencyVokenizer(CANDIDATES, captions, cutter.bridge, **options)


def shares(vokens):
    return np.bincount(vokens, minlength=3) / len(vokens)


def test_random_vokens_are_equally_frequent_and_the_same_again(cutter):
    text = cutter.cut(["a dog runs"] * 3000)
    first, again, other = (RandomVokenizer(CANDIDATES, seed).label_pieces(text, 0) for seed in (1, 1, 2))
    assert first.scores is None and first.vokens.dtype == np.int32
    assert first.vokens.tolist() == again.vokens.tolist() != other.vokens.tolist()
    assert first.vokens.tolist() != RandomVokenizer(CANDIDATES, 1).label_pieces(text, 1).vokens.tolist()
    np.testing.assert_allclose(shares(first.vokens), 1 / 3, atol=0.02)


def test_term_frequency_follows_the_equation_by_hand(cutter):
    # All text of x is "a dog a": tf(a) = 2/3, tf(dog) = 1/3; of y "dog": tf(dog) = 1; z has none. With gamma = 0.5
    # p(x | a) = e^(4/3) / (e^(4/3) + 2) = 0.655; p(. | dog) = (e^(2/3), e^2, 1) / sum = (0.188, 0.714, 0.097).
    captions = [("x.jpg", "a dog"), ("y.jpg", "dog"), ("x.jpg", "a"), ("other.jpg", "dog dog")]
    found = term_frequency(cutter, captions, temperature=0.5).label_pieces(cutter.cut(["a", "dog"] * 20_000), 0).vokens
    np.testing.assert_allclose(shares(found[::2]), [0.655, 0.1725, 0.1725], atol=0.01)
    np.testing.assert_allclose(shares(found[1::2]), [0.188, 0.714, 0.097], atol=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_term_frequency_follows_a_naive_softmax(cutter, seed):
    rng = np.random.default_rng(seed)
    words = ["a", "dog", "run", "b"]
    captions = [(f"{key}.jpg", " ".join(rng.choice(words, rng.integers(1, 6)))) for key in "xyzx"]
    gamma = 0.2
    vokenizer = term_frequency(cutter, captions, temperature=gamma, seed=seed)
    text = cutter.cut([" ".join(words)] * 20_000)
    found = vokenizer.label_pieces(text, 0).vokens
    number = {word: cutter.bridge.numbers_of([word])[0][0] for word in words}
    for word in words:
        tf = []
        for key in CANDIDATES.keys:
            pieces = [piece for name, caption in captions if name == key for piece in caption.split()]
            tf.append(pieces.count(word) / len(pieces))
        weights = [math.exp(each / gamma) for each in tf]
        expected = np.array(weights) / sum(weights)
        np.testing.assert_allclose(shares(found[text.numbers == number[word]]), expected, atol=0.02)


def test_term_frequency_of_a_small_temperature_is_certain(cutter):
    vokenizer = term_frequency(cutter, [("x.jpg", "a"), ("y.jpg", "dog dog a")])
    found = vokenizer.label_pieces(cutter.cut(["a"] * 1000 + ["dog"] * 1000 + ["run"] * 900), 0).vokens
    assert set(found[:1000]) == {0} and set(found[1000:2000]) == {1} and set(found[2000:]) == {0, 1, 2}


@pytest.mark.parametrize(
    ("captions", "temperature", "message"),
    [
        ([("x.jpg", "a")], 0.0, "more than 0, but is 0.0"),
        ([("x.jpg", "a")], float("nan"), "more than 0, but is nan"),
        ([("x.jpg", "a")], 0.001, "at least 0.00167 for these captions, .* but is 0.001"),
        ([("other.jpg", "a")], 0.01, "some of the 3 candidates, such as 'x.jpg', should have captions, but none has"),
    ],
)
def test_term_frequency_refuses_what_it_cannot_draw_from(cutter, captions, temperature, message):
    with pytest.raises(InputError, match=message):
        term_frequency(cutter, captions, temperature=temperature)


def test_many_images_of_the_smallest_temperature_are_drawn_alike(cutter):
    candidates = Candidates(np.arange(2000), [f"{number}.jpg" for number in range(2000)])
    captions = [(f"{number}.jpg", "dog") for number in range(1000)]  # each as much as can be: their sum is the largest
    vokenizer = TermFrequencyVokenizer(candidates, captions, cutter.bridge, temperature=1 / 600)
    found = vokenizer.label_pieces(cutter.cut(["dog"] * 3000), 0).vokens
    assert found.max() < 1000 and len(set(found)) > 900


def test_other_captions_are_another_plan(cutter):
    captions = [("x.jpg", "a dog"), ("y.jpg", "dog"), ("other.jpg", "runs")]
    first, same, other = (
        term_frequency(cutter, each)
        for each in (captions, [*captions[:2], ("other.jpg", "sits")], [("x.jpg", "a dog"), ("y.jpg", "a dog")])
    )
    assert first.plan == same.plan and first.signed == same.signed  # what isn't of a candidate decides nothing
    assert first.plan != other.plan and first.signed != other.signed


def test_term_frequency_draws_anew_for_each_seed_and_shard(cutter):
    text = cutter.cut(["a dog runs"] * 200)
    found = [
        tuple(term_frequency(cutter, [("x.jpg", "a"), ("y.jpg", "dog")], temperature=1.0, seed=seed)
              .label_pieces(text, shard).vokens)
        for seed, shard in ((1, 0), (1, 0), (2, 0), (1, 1))
    ]  # fmt: skip
    assert found[0] == found[1] and len(set(found)) == 3
