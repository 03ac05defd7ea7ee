"""Objects: nouns, clusters and images worked by hand, shares of N, what isn't there, and the command."""

import pickle
import shutil

import numpy as np
import pytest
import spacy
from conftest import write_store
from small_word_vectors import write_vectors

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval import object as objects
from visual_grounding.retrieval.finder import open_finder, write_image_ids
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.noun_collection import NounCollection
from visual_grounding.retrieval.object import ObjectFinder, centroids
from visual_grounding.text.nouns import KnownNouns
from visual_grounding.text.stop_words import ENGLISH
from visual_grounding.text.word_vectors import WordVectors

# dog is image 0..3, cat 4..7, ball 8..11. puppy isn't in the collection: it is nearest to dog.
VECTORS = {
    "dog": [1.0, 0.0, 0.0], "cat": [0.0, 1.0, 0.0], "ball": [0.0, 0.0, 1.0], "puppy": [0.8, 0.6, 0.0],
    "kitten": [0.1, 0.9, 0.0], "hound": [0.9, 0.1, 0.0], "sphere": [0.1, 0.1, 0.9],
}  # fmt: skip
LINES = [
    f"{noun}\t\timage{row}.jpg"
    for place, noun in enumerate(("dog", "cat", "ball"))
    for row in range(4 * place, 4 * place + 4)
]


class All(KnownNouns):
    """All words that have a vector are nouns."""

    def __init__(self):
        super().__init__(VECTORS)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("objects")
    (folder / "nouns.tsv").write_text("".join(f"{line}\n" for line in LINES))
    write_store(folder / "store", np.ones((13, 1, 2)))
    write_vectors(folder / "vectors", VECTORS)
    return folder


def make_finder(world, count=4, clusters=2, nouns=None):
    store, vectors = FeatureStore(world / "store"), WordVectors(world / "vectors")
    found = NounCollection(world / "nouns.tsv", store, vectors, ENGLISH, 4)
    return ObjectFinder(found, store, vectors, nouns or All(), count, clusters)


def nouns_of(ids):
    return [("dog", "cat", "ball")[row // 4] if row >= 0 else None for row in ids]


def test_images_of_few_nouns_agree_with_an_example_worked_by_hand(world):
    # N = 4. "cat dog": both have cosine 1 with their nouns, so the text's order counts: cat, dog, cat, dog. "puppy":
    # its cosine is .8 with dog, .6 with cat: four dogs. "puppy ball": ball (1) before dog (.8). "kitten, cat": the same
    # noun of the collection, twice: its images in turn.
    finder = make_finder(world)
    found = finder.find(["a cat, a dog", "Puppy!", "puppy and ball", "kitten cat", "zebra", ""])
    assert [nouns_of(ids) for ids in found.ids] == [
        ["cat", "dog", "cat", "dog"], ["dog"] * 4, ["ball", "dog", "ball", "dog"], ["cat"] * 4, [None] * 4, [None] * 4
    ]  # fmt: skip
    kitten = 0.9 / 0.82**0.5
    assert np.allclose(
        found.scores, [[1] * 4, [0.8] * 4, [1, 0.8, 1, 0.8], [1, kitten, 1, kitten], [0] * 4, [0] * 4], atol=1e-6
    )
    assert found.counts == {"empty": 1, "no_noun": 1, "short": 0}
    for ids in found.ids[:4]:
        assert len(set(ids.tolist())) == 4
    order = {noun: rows.tolist() for (noun,), rows in zip(finder.objects.lemmas, finder.objects.rows)}
    assert found.ids[1].tolist() == order["dog"] and found.ids[0].tolist()[::2] == order["cat"][:2]


def test_more_nouns_than_clusters_are_clustered(world):
    # Two clusters of five: {dog, hound, puppy} around (.9, .23, 0), {ball, sphere} around (.05, .05, .95). hound is
    # nearest to the first centroid (.13 from it; dog .25, puppy .38), ball and sphere are as near to the second: by
    # order of the text.
    finder = make_finder(world)
    assert finder.key_nouns(["dog", "ball", "hound", "sphere", "puppy"]) in (["ball", "hound"], ["hound", "sphere"])
    found = finder.find(["dog ball hound sphere puppy"])
    assert nouns_of(found.ids[0]) == ["ball", "dog", "ball", "dog"]
    # The mean of each cluster, worked by hand.
    vectors = np.array([VECTORS[noun] for noun in ("dog", "hound", "puppy", "ball", "sphere")])
    means = sorted(centroids(vectors, 2, 1).round(3).tolist())
    assert means == [[0.05, 0.05, 0.95], [0.9, 0.233, 0.0]]


def test_a_noun_that_is_nearest_to_two_centroids_counts_once(world, monkeypatch):
    finder = make_finder(world)
    monkeypatch.setattr(objects, "centroids", lambda vectors, clusters, seed: vectors[[1, 1]] + 0.01)
    assert finder.key_nouns(["dog", "cat", "ball"]) == ["cat"]


def test_what_does_not_divide_goes_to_the_first(world):
    found = make_finder(world, count=5, clusters=3).find(["puppy cat sphere"])
    # cat (1), sphere's ball (.988), puppy's dog (.8): two, two, one.
    assert nouns_of(found.ids[0]) == ["cat", "ball", "dog", "cat", "ball"]


def test_images_that_run_out_or_are_excluded(world):
    finder = make_finder(world, count=6, clusters=1)
    found = finder.find(["dog", "dog"], np.array([-1, 2]))
    assert nouns_of(found.ids[0]) == ["dog"] * 4 + [None] * 2
    assert sorted(found.ids[1].tolist()) == [-1, -1, -1, 0, 1, 3]
    assert found.counts["short"] == 2


def test_an_image_of_two_nouns_is_found_once(world, tmp_path):
    (tmp_path / "nouns.tsv").write_text(
        "".join(f"{noun}\t\timage{row}.jpg\n" for noun in ("dog", "cat") for row in range(3))
    )
    store, vectors = FeatureStore(world / "store"), WordVectors(world / "vectors")
    finder = ObjectFinder(
        NounCollection(tmp_path / "nouns.tsv", store, vectors, ENGLISH, 3), store, vectors, All(), 4, 2
    )
    ids = finder.find(["dog cat"]).ids[0].tolist()
    assert sorted(ids) == [-1, 0, 1, 2]


def test_plurals_without_a_vector_take_that_of_their_singular(world):
    assert nouns_of(make_finder(world).find(["balls"]).ids[0]) == ["ball"] * 4


def test_the_same_text_finds_the_same_wherever_it_stands(world):
    lines = ["dog ball hound sphere puppy", "cat kitten dog hound", "puppy"]
    one, other = make_finder(world).find(lines), make_finder(world).find(lines[::-1])
    assert one.ids.tolist() == other.ids[::-1].tolist()
    copy = pickle.loads(pickle.dumps(make_finder(world)))
    assert copy.find(lines).ids.tolist() == one.ids.tolist()


def test_the_command_says_what_nouns_are(world, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(objects, "installed_tagger", lambda: None)
    (tmp_path / "text").write_text("a cat, a dog\nthe kitten\nBalls\n")
    flags = ["--nouns", world / "nouns.tsv", "--image-features", world / "store", "--word-vectors", world / "vectors"]
    flags += ["-n", 4, "--clusters", 2, "--images-per-noun", 4]
    command = ["retrieve", "--method", "object", *flags, "--text", tmp_path / "text"]
    assert main(list(map(str, [*command, "--out", tmp_path / "ids"]))) == 0
    table = ImageIds(tmp_path / "ids")
    assert [nouns_of(ids) for ids in table.ids] == [["cat", "dog"] * 2, [None] * 4, ["ball"] * 4]
    said = capsys.readouterr()
    assert "no part-of-speech tagger is used: nouns are the words that are nouns of the collection" in said.err
    assert "1 of 3 sentences (33.3 %) have no noun with a vector and images" in said.err
    assert "nouns:collection" in said.out
    made = spacy.blank("en", meta={"name": "rules", "version": "1"})
    made.add_pipe("attribute_ruler").add([[{"LOWER": "kitten"}]], {"POS": "NOUN"})
    made.to_disk(tmp_path / "tagger")
    tagged = [*command, "--tagger", tmp_path / "tagger", "--out", tmp_path / "tagged"]
    assert main(list(map(str, tagged))) == 0
    said = capsys.readouterr()
    assert "nouns:en_rules-1" in said.out and "no part-of-speech tagger" not in said.err
    assert [nouns_of(ids) for ids in ImageIds(tmp_path / "tagged").ids] == [[None] * 4, ["cat"] * 4, [None] * 4]
    words = ["object", *flags, "--tagger", tmp_path / "tagger", "--seed", 3]
    assert open_finder(list(map(str, words))).seed == 3


def test_flags_say_how_many_clusters_and_by_which_seed(world, monkeypatch):
    asked = []
    monkeypatch.setattr(objects, "centroids", lambda vectors, k, seed: asked.append((k, seed)) or vectors[:k])
    flags = ["--nouns", world / "nouns.tsv", "--image-features", world / "store", "--word-vectors", world / "vectors"]
    words = ["object", *flags, "--images-per-noun", 4, "--tagger", "none", "-n", 4, "--clusters", 2, "--seed"]
    finders = {seed: open_finder(list(map(str, [*words, seed]))) for seed in (3, 4)}
    for finder in finders.values():
        finder.find(["dog cat ball"])
    assert asked == [(2, 3), (2, 4)]
    rows = {seed: [each.tolist() for each in finder.objects.rows] for seed, finder in finders.items()}
    assert rows[3] != rows[4] and [sorted(each) for each in rows[3]] == [sorted(each) for each in rows[4]]


def test_gaussians_are_spherical_and_begin_as_k_means(monkeypatch):
    """Against scikit-learn by name: clusters that touch have other means with another form or another start."""
    from sklearn.mixture import GaussianMixture

    vectors = np.random.default_rng(3).normal(size=(60, 3)) * [1.0, 0.3, 0.1]
    means = {
        (form, start): GaussianMixture(4, covariance_type=form, init_params=start, random_state=1).fit(vectors).means_
        for form in ("spherical", "diag")
        for start in ("k-means++", "kmeans")
    }
    found = centroids(vectors, 4, 1)
    assert [key for key, each in means.items() if np.allclose(found, each)] == [("spherical", "k-means++")]


def test_the_seed_of_a_mixture_is_its_random_state(monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(40, 3))
    found = [centroids(vectors, 6, seed) for seed in (1, 1, 2)]
    assert np.array_equal(found[0], found[1]) and not np.allclose(found[0], found[2])


@pytest.mark.parametrize(("images", "clusters"), [(1, 1), (4, 4), (8, 8), (24, 8)])
def test_a_text_has_eight_nouns_or_as_many_as_images(world, images, clusters):
    flags = ["--nouns", world / "nouns.tsv", "--image-features", world / "store", "--word-vectors", world / "vectors"]
    words = ["object", *flags, "--images-per-noun", 4, "--tagger", "none", "-n", images]
    finder = open_finder(list(map(str, words)))
    assert (finder.clusters, finder.images_per_sentence) == (clusters, images)


def test_other_choices_make_another_table(world, tmp_path):
    write_image_ids(make_finder(world), ["dog", "cat"], tmp_path / "ids")
    for other in (make_finder(world, clusters=1), make_finder(world, count=5)):
        with pytest.raises(InputError, match="ids"):
            write_image_ids(other, ["dog", "cat"], tmp_path / "ids")


def test_other_nouns_vectors_and_numbers_make_another_table(world, tmp_path):
    (tmp_path / "text").write_text("dog\n")
    (tmp_path / "nouns.tsv").write_text("".join(f"{line}\n" for line in LINES[:8]))
    write_vectors(tmp_path / "vectors", {**VECTORS, "dog": [1.0, 0.5, 0.0]})
    (tmp_path / "stop").write_text("cat\n")
    flags = {"--nouns": world / "nouns.tsv", "--image-features": world / "store", "--word-vectors": world / "vectors",
             "-n": 4, "--clusters": 2, "--images-per-noun": 4, "--tagger": "none", "--seed": 1}  # fmt: skip
    others = {"--nouns": tmp_path / "nouns.tsv", "--word-vectors": tmp_path / "vectors", "--images-per-noun": 3,
              "--seed": 2, "--stop-words": tmp_path / "stop"}  # fmt: skip

    def made(**more):
        words = [word for flag, value in {**flags, **more}.items() for word in (flag, value)]
        return main(
            list(
                map(
                    str,
                    ["retrieve", "--method", "object", *words, "--text", tmp_path / "text", "--out", tmp_path / "ids"],
                )
            )
        )

    assert made() == 0
    signatures = {ImageIds(tmp_path / "ids").signature}
    for flag, value in others.items():
        assert made(**{flag: value}) == 2, flag
        shutil.move(tmp_path / "ids", tmp_path / "first")
        assert made(**{flag: value}) == 0
        signatures.add(ImageIds(tmp_path / "ids").signature)
        shutil.rmtree(tmp_path / "ids")
        shutil.move(tmp_path / "first", tmp_path / "ids")
    assert len(signatures) == 1 + len(others)  # one line tells how a table was made
    shutil.rmtree(tmp_path / "ids")
    (tmp_path / "stop").write_text("dog\n")
    assert made(**{"--stop-words": tmp_path / "stop"}) == 0
    assert (ImageIds(tmp_path / "ids").ids == -1).all()  # what says nothing is no noun, either


@pytest.mark.parametrize(
    ("count", "clusters", "message"),
    [(4, 5, r"at most as many clusters as images \(4\), but there are 5"), (4, 0, "at least 1"), (0, 1, "at least 1")],
)
def test_impossible_numbers_are_refused(world, count, clusters, message):
    with pytest.raises(InputError, match=message):
        make_finder(world, count, clusters)


@pytest.mark.parametrize(("flag", "value"), [("--seed", "-1"), ("--seed", "5000000000"), ("--images-per-noun", "0")])
def test_impossible_flags_are_refused(world, flag, value):
    flags = ["--nouns", world / "nouns.tsv", "--image-features", world / "store", "--word-vectors", world / "vectors"]
    with pytest.raises(InputError, match=r"at least 1|0 or more|in 0\.\.4294967295"):
        open_finder(list(map(str, ["object", *flags, flag, value])))


def test_images_that_could_not_be_read_are_never_found_nor_counted(world, tmp_path):
    features = np.ones((13, 1, 2))
    features[1] = 0
    store, vectors = FeatureStore(write_store(tmp_path / "store", features)), WordVectors(world / "vectors")
    found = NounCollection(world / "nouns.tsv", store, vectors, ENGLISH, 3)
    assert (found.absent, found.unknown, sorted(found.rows[0].tolist())) == (1, 0, [0, 2, 3])
    finder = ObjectFinder(found, store, vectors, All(), 4, 2)
    counts = write_image_ids(finder, ["dog"], tmp_path / "ids")
    assert sorted(ImageIds(tmp_path / "ids").ids[0].tolist()) == [-1, 0, 2, 3] and counts["absent_noun_lines"] == 1
    assert any(
        "1 of 12 lines of the collection (8.3 %) name images without" in said for said in finder.warnings(counts, 1)
    )
    assert NounCollection(world / "nouns.tsv", store, vectors, ENGLISH, 4).few == 1
