"""Labels of regions as words: which, in which order, in which words, in every batch of a task."""

import logging
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import write_image_ids, write_store
from fairseq.tasks import FairseqTask
from masked_text import LetterFinder, line_of, text_dataset
from small_tokenizers import make_tokenizer

from visual_grounding import InputError
from visual_grounding.data.image_tags import ImageTags
from visual_grounding.data.interactive_images import TypedSentences
from visual_grounding.data.visual_batches import TabledImages
from visual_grounding.data.visual_context import ImageTablesConfig, VisualContext
from visual_grounding.features.store import FeatureStore
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

SYMBOLS = ["<s>", "<pad>", "</s>", "<unk>", "dog", "sports", "ball", "person"]
NAMES = ["dog", "sports ball", "Person", "sports car", "tree"]


def tags(least_score: float = 0.3, names: list[str] = NAMES) -> ImageTags:
    return ImageTags(names, SYMBOLS, "dict.en.txt", "words", least_score)


def test_tags_are_the_most_confident_labels_each_once_an_image():
    """Image 1: ball 0.9, dog 0.8, dog 0.7, person 0.2, none. Image 2: dog 0.4 after person 0.5, and ball below 0.3."""
    labels = np.array([[[0, 1, 0, 2, -1], [1, 0, 2, -1, -1]], [[-1] * 5, [-1] * 5]], np.int32)
    scores = np.array([[[0.7, 0.9, 0.8, 0.2, 1], [0.1, 0.4, 0.5, 0, 0]], [[0] * 5, [0] * 5]], np.float16)
    assert tags().write(labels, scores).tolist() == [[5, 6, 4, 7, 4], [1, 1, 1, 1, 1]]
    assert tags(0.75).write(labels, scores).tolist() == [[5, 6, 4], [1, 1, 1]]
    assert tags().write(labels[1:], scores[1:]).tolist() == [[1]]


def test_regions_without_a_label_have_no_tag():
    labels, scores = np.array([[[-1, 0]]], np.int32), np.array([[[0.9, 0.5]]], np.float16)
    assert tags(names=["dog", "ball"]).write(labels, scores).tolist() == [[4]]  # −1 isn't the last name


def test_score_of_the_threshold_itself_is_taken_though_float16_has_less():
    labels, scores = np.array([[[0]]], np.int32), np.array([[[0.1]]], np.float16)
    assert float(scores[0, 0, 0]) < 0.1
    assert tags(0.1).write(labels, scores).tolist() == [[4]]


def test_labels_of_equal_scores_keep_the_stores_order():
    labels = np.array([[[2, 0, 1]]], np.int32)
    assert tags().write(labels, np.full((1, 1, 3), 0.5)).tolist() == [[7, 4, 5, 6]]


def test_words_that_the_dictionary_does_not_have_are_left_out_and_counted():
    made = tags()
    assert made.numbers == [[4], [5, 6], [7], [5], []]  # Person is found as person
    assert "2 of 5 labels of regions (40.0 %) have words that the source" in str(made.warning())
    assert str(made.warning()).endswith("cut: sports car, tree")
    assert tags(names=["dog"]).warning() is None
    with pytest.raises(InputError, match=r"words of dict.en.txt, but it has none of the 2 labels, such as 'a b'"):
        tags(names=["a b", "c"])


def test_labels_are_cut_by_the_tokenizer_of_the_dictionary(tmp_path):
    folder = make_tokenizer(tmp_path, "wordpiece")
    bridge = TokenizerBridge(str(folder))
    made = ImageTags(["dogs", "a run", "\u72d7"], bridge.symbols, "dict.en.txt", str(folder), 0.3)
    assert [[bridge.symbols[number] for number in label] for label in made.numbers] == [
        ["dog", "##s"],
        ["a", "run"],
        [],
    ]
    assert made.incomplete == ["\u72d7"] and made.choice == "pieces from score 0.3"
    with pytest.raises(InputError, match=r"dict.en.txt should be the dictionary of tokenizer .*prepare pieces"):
        ImageTags(NAMES, SYMBOLS, "dict.en.txt", str(folder), 0.3)
    with pytest.raises(InputError, match="tokenizer 'no/where' should be a folder with a pretrained model"):
        ImageTags(NAMES, SYMBOLS, "dict.en.txt", "no/where", 0.3)


def test_score_that_is_no_number_is_refused():
    with pytest.raises(InputError, match=r"--image-tag-score should be a number such as 0.3, but is nan"):
        tags(float("nan"))


def test_score_above_all_that_there_are_is_refused(store, tmp_path):
    with pytest.raises(InputError, match=r"--image-tag-score should leave tags, but is 0.76: the highest .* is 0.75\."):
        context(tmp_path, image_tag_score=0.76)
    assert context(tmp_path, image_tag_score=0.75).tags is not None


def test_labels_that_are_warned_of_give_a_terminal_no_commands(tmp_path, caplog):
    names = ["dog", "\x1b[2J", "x" * 10_000]
    columns = {"labels": np.array([[0], [1], [2]], np.int32), "scores": np.ones((3, 1))}
    write_store(tmp_path / "store", np.ones((3, 1, 3)), columns=columns, label_names=names)
    context(tmp_path)
    (said,) = [record.getMessage() for record in caplog.records if "left out of the image tags" in record.getMessage()]
    assert "\\x1b[2J" in said and "\x1b" not in said and len(said) < 1000


LABELS = (np.arange(20)[:, None] + [0, 1]) % 3  # image n: n, n + 1, the second more confident


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    columns = {"labels": LABELS.astype(np.int32), "scores": np.tile([0.5, 0.75], (20, 1))}
    store = FeatureStore(write_store(tmp_path / "store", np.ones((20, 2, 3)), columns=columns, label_names=NAMES[:3]))
    write_image_ids(tmp_path / "ids/train", np.arange(11)[:, None], store.keys_sha256)
    return store


def context(folder: Path, **flags: object) -> VisualContext:
    cfg = ImageTablesConfig(image_features=str(folder / "store"), image_ids=str(folder / "ids"), image_tags="words")
    for name, value in {"train_subset": "train", "num_workers": 0, "restore_file": "none.pt", "checkpoint_suffix": "",
                        "data": "bin", **flags}.items():  # fmt: skip
        setattr(cfg, name, value)
    images = VisualContext(cfg, FairseqTask(cfg))
    images.write_tags("dict.en.txt", SYMBOLS)
    return images


WRITTEN = {0: [4], 1: [5, 6], 2: [7]}


def tags_of_image(number: int) -> list[int]:
    return [*WRITTEN[(number + 1) % 3], *WRITTEN[number % 3]]


def first_tags(dataset: object, index: int = 5) -> list[int]:
    row = dataset.collater([dataset[index]])["net_input"]["visual"]["tags"][0]  # type: ignore[attr-defined]
    return row[row != 1].tolist()


@pytest.mark.parametrize("way", ["tables", "shuffled", "blank", "found", "found blank", "typed"])
def test_tags_come_with_the_images_whatever_gives_them(store, tmp_path, way):
    order = way.split()[-1] if way.split()[-1] in ("shuffled", "blank") else "congruent"
    images = context(tmp_path, image_order=order)
    if way == "typed":
        dataset = TypedSentences(text_dataset(), store, TabledImages(np.full((11, 1), 5)), images.tags)
    elif way.startswith("found"):
        dataset = images.add_found(text_dataset(), "valid", LetterFinder(store), line_of)
    else:
        dataset = images.add(text_dataset(), "train", "train.en-de")
    if order == "blank":
        assert first_tags(dataset) == []
    elif way == "shuffled":
        (image,) = dataset.choice.ids[5]
        assert image != 5 and first_tags(dataset) == tags_of_image(image)
    else:
        assert first_tags(dataset) == tags_of_image(5) + (tags_of_image(13) if way == "found" else [])


def test_tags_are_the_same_in_batches_of_several_and_follow_their_order(store, tmp_path):
    dataset = context(tmp_path).add(text_dataset(), "train", "train.en-de")
    batch = dataset.collater([dataset[index] for index in (2, 1, 8)])
    for index, row in zip(batch["id"].tolist(), batch["net_input"]["visual"]["tags"]):
        assert row[row != 1].tolist() == tags_of_image(index)


def test_without_the_flag_batches_have_no_tags(store, tmp_path):
    dataset = context(tmp_path, image_tags=None).add(text_dataset(), "train", "train.en-de")
    assert "tags" not in dataset.collater([dataset[0]])["net_input"]["visual"]


def test_tags_without_images_or_of_a_store_without_labels_are_refused(store, tmp_path):
    with pytest.raises(InputError, match="--image-tags names what is in images, but --image-features isn't given"):
        context(tmp_path, image_features=None, image_ids=None)
    write_store(tmp_path / "bare", np.ones((2, 2, 3)), columns={"labels": np.zeros((2, 2), np.int32)})
    with pytest.raises(
        InputError, match=r"scores of regions are needed for --image-tags, but .*bare has features, lab"
    ):
        context(tmp_path, image_features=str(tmp_path / "bare"))


def test_label_beyond_the_names_is_refused(store, tmp_path):
    dataset = context(tmp_path).add(text_dataset(), "train", "train.en-de")
    labels = np.load(tmp_path / "store/labels.npy")
    labels[5, 1] = 3
    np.save(tmp_path / "store/labels.npy", labels)
    with pytest.raises(InputError, match=r"labels should be -1 for none, or 0 to 2, .*row 5 \(image5.jpg\).* has 3"):
        first_tags(dataset)


def test_model_that_reads_no_tags_is_refused(store, tmp_path):
    model = SimpleNamespace(forward=lambda src_tokens, visual: None)
    context(tmp_path, image_tags=None).check_model(model)
    with pytest.raises(
        InputError, match=r"--image-tags is for a model that reads tags, .*, but SimpleNamespace doesn't"
    ):
        context(tmp_path).check_model(model)
    model.reads_image_tags = True
    context(tmp_path).check_model(model)


@pytest.mark.parametrize(
    ("given", "learned", "said"),
    [
        ({}, "words from score 0.3", ""),
        (
            {},
            None,
            "trained with no tags beside the text, but here it gets words from score 0.3: give the --image-tags",
        ),
        (
            {"image_tags": None},
            "words from score 0.3",
            "with words from score 0.3 beside the text, but here it gets none",
        ),
        ({"image_tag_score": 0.5}, "words from score 0.3", "with words from score 0.3 beside .* words from score 0.5"),
    ],
)
def test_checkpoint_that_learned_with_other_tags_warns_once(store, tmp_path, caplog, given, learned, said):
    images = context(tmp_path, **given)
    for state in ({"image_tags": learned}, {}, {"image_tags": None, "image_features": None}):  # text alone, or earlier
        images._memory.merge_state_dict({"image_features": store.signature, **state})
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == bool(said)
    for message in found:
        assert said.split(" .* ")[0] in message and said.split(" .* ")[-1] in message
    assert images._memory._state["image_tags"] == (None if "image_tags" in given else images.tags.choice)


def test_a_model_that_reads_features_alone_says_what_it_does_without(store, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    model = SimpleNamespace(forward=lambda src_tokens, visual: None, reads_image_tags=True)
    context(tmp_path).check_model(model)
    assert "does without" not in caplog.text  # labels are its tags
    context(tmp_path, image_tags=None).check_model(model)
    assert "SimpleNamespace does without the labels of the regions in" in caplog.text
    caplog.clear()
    model.reads_columns = ("labels",)
    context(tmp_path, image_tags=None).check_model(model)
    assert "does without" not in caplog.text
