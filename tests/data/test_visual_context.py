"""The owner of the image flags: what it opens, joins, counts and refuses."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import write_image_ids, write_store
from fairseq.tasks import FairseqTask
from masked_text import LetterFinder, line_of, text_dataset
from PIL import Image

from visual_grounding import InputError
from visual_grounding.data import visual_context
from visual_grounding.data.image_order import derangement
from visual_grounding.data.visual_batches import VisualContextDataset
from visual_grounding.data.visual_context import ImageTablesConfig, VisualContext
from visual_grounding.features.backbones import Preprocessing
from visual_grounding.features.pixels import PixelSource
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import open_images
from visual_grounding.retrieval.finder import Found


@dataclass
class Config(ImageTablesConfig):
    """As a task's own configuration: the text lies somewhere."""

    data: str = "bin"


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    return FeatureStore(write_store(tmp_path / "store", 1 + np.arange(20 * 2 * 3).reshape(20, 2, 3)))


def context(folder: Path, **flags: object) -> VisualContext:
    cfg = Config(
        image_features=str(folder / "store"), image_ids=str(folder / "ids"), train_subset="train", num_workers=1
    )
    for name, value in flags.items():
        setattr(cfg, name, value)
    return VisualContext(cfg, FairseqTask(cfg))


def add(folder: Path, parts: list[tuple[int, int]] | None = None, epoch: int = 1, **flags: object) -> np.ndarray:
    """Ids of the training set's sentences, after checks."""
    dataset = context(folder, **flags).add(text_dataset(), "train", "train.en-de", epoch, parts)
    assert isinstance(dataset, VisualContextDataset)
    return dataset.choice.ids


def test_table_is_cut_to_the_best_n(store, tmp_path):
    table = np.arange(33).reshape(11, 3) % 20
    write_image_ids(tmp_path / "ids/train", table, store.keys_sha256)
    assert add(tmp_path).tolist() == table.tolist()
    assert add(tmp_path, images_per_sentence=2).tolist() == table[:, :2].tolist()


def test_tables_of_a_split_in_parts_are_joined_and_repeated_as_the_text_is(store, tmp_path):
    first, second = np.arange(12).reshape(4, 3), np.arange(6).reshape(3, 2) + 10
    write_image_ids(tmp_path / "ids/train", first, store.keys_sha256)
    write_image_ids(tmp_path / "ids/train1", second, store.keys_sha256)
    ids = add(tmp_path, parts=[(4, 2), (3, 1)])
    assert ids.tolist() == [*first[:, :2].tolist(), *first[:, :2].tolist(), *second.tolist()]


def test_parts_that_only_fit_together_are_refused(store, tmp_path):
    """7 and 4 rows are 11, but each belongs to its own part."""
    write_image_ids(tmp_path / "ids/train", np.zeros((7, 1)), store.keys_sha256)
    write_image_ids(tmp_path / "ids/train1", np.zeros((4, 1)), store.keys_sha256)
    with pytest.raises(InputError, match=r"train.en-de has 4 sentences, but image ids in .*train have 7 rows"):
        add(tmp_path, parts=[(4, 1), (7, 1)])
    write_image_ids(tmp_path / "second/train", np.zeros((4, 1)), store.keys_sha256)
    write_image_ids(tmp_path / "second/train1", np.zeros((4, 1)), store.keys_sha256)
    with pytest.raises(InputError, match=r"train1.en-de has 7 sentences, but image ids in .*train1 have 4 rows"):
        add(tmp_path, parts=[(4, 1), (7, 1)], image_ids=str(tmp_path / "second"))


def test_training_set_takes_one_folder_an_epoch_and_other_splits_the_first(store, tmp_path):
    for number in (0, 1):
        for split in ("train", "valid"):
            write_image_ids(tmp_path / f"ids{number}" / split, np.full((11, 1), number), store.keys_sha256)
    folders = f"{tmp_path}/ids0:{tmp_path}/ids1"
    found = [add(tmp_path, epoch=epoch, image_ids=folders, data="a:b")[0, 0] for epoch in (1, 2, 3)]
    assert found == [0, 1, 0]
    images = context(tmp_path, image_ids=folders)
    assert images.add(text_dataset(), "valid", "valid.en-de", epoch=2).choice.ids[0, 0] == 0


def test_sentences_without_image_are_counted_once_a_run(store, tmp_path, caplog):
    ids = np.zeros((11, 1), np.int32)
    ids[:3] = -1
    write_image_ids(tmp_path / "ids/train", ids, store.keys_sha256)
    images = context(tmp_path)
    for epoch in (1, 2):
        images.add(text_dataset(), "train", "train.en-de", epoch)
    assert caplog.text.count("3 of 11 sentences of train.en-de (27.3 %) have no image") == 1
    caplog.clear()
    assert (add(tmp_path, image_order="blank") == -1).all() and not caplog.text


def test_one_line_says_which_images_a_split_has(store, tmp_path, caplog):
    ids = np.arange(22).reshape(11, 2) % 9
    ids[[0, 1, 5]] = -1
    write_image_ids(tmp_path / "ids/train", ids, store.keys_sha256)
    with caplog.at_level("INFO", "visual_grounding.data.visual_context"):
        add(tmp_path, image_order="shuffled")
    said = "images of train.en-de: 2 a sentence, shuffled; 3 of 11 sentences (27.3 %) have none; features "
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
    assert line == f"{said}{store.folder}, {store.signature}"


def test_sentences_that_keep_an_own_image_when_shuffled_are_counted(store, tmp_path, caplog):
    ids = np.array([[row, 19] for row in range(11)])
    ids[:5, 1] = 12 + np.arange(5)  # image 19 is among those of 6 of 11, so one of these gets it again
    write_image_ids(tmp_path / "ids/train", ids, store.keys_sha256)
    arranged = add(tmp_path, image_order="shuffled")
    assert (arranged[:, 1] == 19)[5:].sum() == 1 and (arranged[:, 0] != ids[:, 0]).all()
    assert caplog.text.count("1 of 11 sentences of train.en-de (9.1 %) keep an image of their own under --image-o") == 1
    caplog.clear()
    add(tmp_path, image_order="shuffled", images_per_sentence=1)
    assert not caplog.text


def test_a_table_in_place_of_the_folder_of_tables_is_refused_with_its_parent(store, tmp_path, monkeypatch):
    write_image_ids(tmp_path / "ids/train", np.zeros((11, 3), np.int32), store.keys_sha256)
    for given, parent in ((tmp_path / "ids/train", tmp_path / "ids"), (f"{tmp_path}/ids/train/", tmp_path / "ids")):
        with pytest.raises(InputError, match=rf"such as DIR/train, but {given} is itself a table\. .*-ids {parent}$"):
            add(tmp_path, image_ids=str(given))
    monkeypatch.chdir(tmp_path / "ids")
    with pytest.raises(
        InputError, match=r"but train is itself a table\. .*give the folder it lies in: --image-ids \.$"
    ):
        add(tmp_path, image_ids="train")


def test_a_feature_store_in_place_of_the_folder_of_tables_is_called_one(store, tmp_path):
    with pytest.raises(
        InputError, match=rf"but {store.folder} is itself a feature store\. Is it the folder of another"
    ):
        add(tmp_path, image_ids=str(store.folder))


def test_store_without_a_needed_column_is_refused_by_its_name(store, tmp_path):
    """The fixture's store has features alone; another has labels, too; a run without images needs nothing."""
    with pytest.raises(
        InputError,
        match=rf"^boxes and labels of regions are needed for tags, but {store.folder} has features\. .*regions\.md",
    ):
        context(tmp_path).need_columns("boxes", "labels", why="for tags")
    columns = {"labels": np.zeros((20, 2)), "scores": np.ones((20, 2))}
    write_store(tmp_path / "labelled", np.ones((20, 2, 3)), columns=columns, label_names=["dog"])
    labelled = context(tmp_path, image_features=str(tmp_path / "labelled"))
    with pytest.raises(InputError, match=r"^boxes of regions are needed for places, but .* has features, labels, sco"):
        labelled.need_columns("boxes", "labels", why="for places")
    labelled.need_columns("labels", "scores", why="for tags")
    context(tmp_path, image_features=None).need_columns("boxes", why="for places")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    cfg = Config()
    shown = PixelSource(open_images(tmp_path), Preprocessing(8, 8), str(tmp_path))
    with pytest.raises(InputError, match=r"^boxes and labels of regions are needed for places, but the images are pic"):
        VisualContext(cfg, FairseqTask(cfg), shown).need_columns("boxes", "labels", why="for places")


def test_what_does_not_belong_together_is_refused(store, tmp_path):
    def refused(message: str, ids: np.ndarray, digest: str = store.keys_sha256, **flags: object) -> None:
        folder = tmp_path / f"ids{len(list(tmp_path.iterdir()))}"
        write_image_ids(folder / "train", ids, digest)
        with pytest.raises(InputError, match=message):
            add(tmp_path, image_ids=str(folder), **flags)

    zeros = np.zeros((11, 2), np.int32)
    refused("train.en-de has 11 sentences, but image ids in .* have 12 rows", np.zeros((12, 1), np.int32))
    refused(
        r"refer to row 20, but feature store .* has 20 images \(rows 0..19\).*keys sha256",
        np.full((11, 1), 20, np.int32), "9c02",
    )  # fmt: skip
    for row in (20, -5):
        message = rf"refer to row {row}, but .* rows 0\.\.19 of .*store, or -1 for no image"
        refused(message, np.full((11, 1), row, np.int32))
    refused(f"don't belong to feature store.*keys sha256 9c02… ≠ {store.keys_sha256[:8]}", zeros, "9c02")
    refused("--images-per-sentence is 3, but .* has 2 images a sentence", zeros, images_per_sentence=3)
    refused(r"--images-per-sentence should be 0 \(all\) or more, but is -1", zeros, images_per_sentence=-1)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"image_features": None}, "--image-ids and --image-features belong .*--image-features isn't given"),
        ({"image_ids": None}, r"--image-features and --image-ids belong together, but --image-ids isn't given\.$"),
        ({"data": "a:b"}, r"--image-ids should name as many folders as there are of text \(2: a:b\), but names 1: "),
    ],
)
def test_flags_without_the_ones_they_need_are_refused(store, tmp_path, flags, message):
    with pytest.raises(InputError, match=message):
        context(tmp_path, **flags).check_tables()
    context(tmp_path).check_tables()


def test_without_images_a_dataset_is_text_alone(store, tmp_path):
    images = context(tmp_path, image_features=None, image_ids=None)
    images.check_tables()
    text = text_dataset()
    for dataset in (
        images.add(text, "train", "train.en-de"),
        images.add_rows(text, np.zeros((11, 1)), "train"),
        images.add_found(text, "train", LetterFinder(store), line_of),
    ):
        assert "visual" not in dataset.collater([dataset[0]])["net_input"]
    images.check_model(SimpleNamespace(forward=lambda src_tokens: None))
    assert images.feature_size == 0


def test_model_that_takes_text_alone_is_refused(store, tmp_path):
    images = context(tmp_path)
    images.check_model(SimpleNamespace(forward=lambda src_tokens, visual: None))
    with pytest.raises(InputError, match=r"SimpleNamespace .* takes text alone. Leave both flags out"):
        images.check_model(SimpleNamespace(forward=lambda src_tokens: None))
    assert images.feature_size == 3


def test_pictures_are_framed_at_random_in_the_training_set_alone(tmp_path):
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "a.png")
    cfg = Config(train_subset="train", seed=7)
    images = VisualContext(
        cfg, FairseqTask(cfg), PixelSource(open_images(tmp_path), Preprocessing(8, 8), str(tmp_path))
    )
    rows = np.zeros((11, 1), dtype=np.int64)
    training, validation = (images.add_rows(text_dataset(), rows, split) for split in ("train", "valid"))
    assert (training.framing_seed, validation.framing_seed) == (7, None)
    assert images.feature_size == 0  # the network that is trained along decides it


def test_finder_gives_the_images_of_a_dataset_and_one_of_another_collection_is_refused(store, tmp_path):
    images = context(tmp_path, image_ids=None)
    dataset = images.add_found(text_dataset(), "train", LetterFinder(store), line_of)
    features = dataset.collater([dataset[5]])["net_input"]["visual"]["features"]
    np.testing.assert_array_equal(features[0], store.features[[5, 13]])
    assert not dataset.can_reuse_epoch_itr_across_epochs
    other = FeatureStore(write_store(tmp_path / "other", np.ones((2, 2, 3)), ["x", "y"]))
    message = rf"other, but feature store .*store was made .*{other.keys_sha256[:8]}… ≠ {store.keys_sha256[:8]}…"
    with pytest.raises(InputError, match=message):
        images.add_found(text_dataset(), "train", LetterFinder(other), line_of)


def test_lines_that_keep_their_best_image_when_shuffled_are_counted(store, tmp_path, caplog):
    letter = np.arange(11) % 8  # of each line, which decides its images
    seed = next(seed for seed in range(99) if (letter == letter[derangement(np.arange(11), seed)]).sum() == 1)
    images = context(tmp_path, image_ids=None, image_order="shuffled", image_seed=seed)
    images.add_found(text_dataset(), "train", LetterFinder(store), line_of)
    assert "train, by a sample: 1 of 11 sentences (9.1 %) keep their best image when shuffled: it is" in caplog.text
    caplog.clear()
    context(tmp_path, image_ids=None).add_found(text_dataset(), "train", LetterFinder(store), line_of)
    assert "when shuffled" not in caplog.text


def test_images_that_are_found_obey_the_flags(store, tmp_path):
    def rows(**flags: object) -> list[list[int]]:
        images = context(tmp_path, image_ids=None, **flags)
        dataset = images.add_found(text_dataset(), "train", LetterFinder(store), line_of)
        return dataset.choice.rows(np.array([5]), [dataset[5]], 1).tolist()

    assert rows() == [[5, 13]]
    assert rows(images_per_sentence=1) == [[5]]
    assert rows(image_order="blank") == [[-1]]
    other = int(derangement(np.arange(len(text_dataset())), 1)[5])  # what is found for that item's text
    assert other != 5 and rows(image_order="shuffled") == [[other, other + 8]]
    with pytest.raises(InputError, match=r"--images-per-sentence should be 0 \(all\) or more, but is -1"):
        rows(images_per_sentence=-1)
    with pytest.raises(InputError, match=r"--images-per-sentence is 3, but the finder finds 2"):
        rows(images_per_sentence=3)


@pytest.mark.parametrize(("asked", "lines"), [(200, 11), (11, 11), (4, 4), (5, 4), (1, 1)])
def test_a_sample_of_lines_tells_what_is_found(asked, lines, store, tmp_path, caplog, monkeypatch):
    """All over the text, and none that it mustn't get."""
    caplog.set_level("INFO")
    monkeypatch.setattr(visual_context, "_ASKED", asked)
    seen = []

    class Seen(LetterFinder):
        def search(self, lines: list[str], empty: np.ndarray, excluded: np.ndarray | None) -> Found:
            seen.append((lines, excluded.tolist()))
            return super().search(lines, empty, excluded)

    excluded = np.arange(11)
    context(tmp_path, image_ids=None).add_found(text_dataset(), "train", Seen(store), line_of, excluded)
    ((asked_of, left_out),) = seen
    text = text_dataset()
    assert asked_of == [line_of(text[row]) for row in left_out] and len(asked_of) == lines
    assert left_out[0] == 0 and len(set(np.diff(left_out))) <= 1
    said = f"; 0 of {lines} lines (0.0 %) of a sample have none; features {store.folder}"
    assert "images of train: 2 a sentence, found while batches are made, congruent, find|method:" in caplog.text
    assert said in caplog.text


def test_the_log_says_which_images_a_split_has_however_they_are_given(store, tmp_path, caplog):
    caplog.set_level("INFO")
    images = context(tmp_path, image_ids=None)
    images.add_rows(text_dataset(), np.array([[-1], *[[1]] * 10]), "train")
    images.cfg.image_order = "blank"
    images.add_found(text_dataset(), "valid", LetterFinder(store), line_of)
    where = f"features {store.folder}, {store.signature}"
    assert [record.getMessage() for record in caplog.records if record.levelname == "INFO"] == [
        f"images of train: 1 a sentence, its own; 1 of 11 sentences (9.1 %) have none; {where}",
        f"images of valid: 1 a sentence, blank; all have none; {where}",
    ]


def test_finder_on_a_gpu_is_refused_in_workers_which_are_forked(store, tmp_path):
    class OnGpu(LetterFinder):
        device = "cuda:0"

    with pytest.raises(InputError, match=r"a finder on cuda:0; the 3 processes of --num-workers .* --num-workers 0"):
        context(tmp_path, image_ids=None, num_workers=3).add_found(text_dataset(), "train", OnGpu(store), line_of)
    context(tmp_path, image_ids=None, num_workers=0).add_found(text_dataset(), "train", OnGpu(store), line_of)


@pytest.mark.parametrize("way", ["tables", "rows", "found"])
def test_training_on_from_a_checkpoint_of_another_making_is_refused_however_images_are_given(store, tmp_path, way):
    write_image_ids(tmp_path / "ids/train", np.zeros((11, 1)), store.keys_sha256)
    write_image_ids(tmp_path / "ids/valid", np.zeros((11, 1)), store.keys_sha256)
    state = {"image_features": "import|images:20|arrays:0123abcd|version:0.2.0"}
    torch.save({"model": {}, "task_state": state}, tmp_path / "before.pt")
    images = context(tmp_path, restore_file=str(tmp_path / "before.pt"), checkpoint_suffix="")

    def add_images(split: str) -> None:
        if way == "tables":
            images.add(text_dataset(), split, f"{split}.en-de")
        elif way == "rows":
            images.add_rows(text_dataset(), np.zeros((11, 1), int), split)
        else:
            images.add_found(text_dataset(), split, LetterFinder(store), line_of)

    add_images("valid")
    message = rf"that the checkpoint was trained on, but.*: {store.signature} ≠ import\|images:20\|arrays:0123abcd"
    with pytest.raises(InputError, match=message):
        add_images("train")


def test_checkpoint_that_had_another_number_of_images_in_training_warns_once(store, tmp_path, caplog):
    write_image_ids(tmp_path / "ids/test", np.ones((11, 3), int), store.keys_sha256)

    def said(learned: list[int], **flags: object) -> list[str]:
        caplog.clear()
        images = context(tmp_path, **flags)
        for count in learned:
            images._memory.merge_state_dict({"image_features": store.signature, "images_per_sentence": count})
        for _ in range(2):
            images.add(text_dataset(), "test", "test.en-de")
        return [record.getMessage() for record in caplog.records]

    assert said([3]) == said([]) == said([2], images_per_sentence=2) == said([2], image_order="blank") == []
    fewer, more = said([2, 8])
    begin = f"images a sentence, but image ids in {tmp_path}/ids/test name 3. "
    assert fewer == f"the checkpoint was trained with 2 {begin}Take the best with --images-per-sentence 2."
    assert more == f"the checkpoint was trained with 8 {begin}More are found by: visual-grounding retrieve … -n 8"


@pytest.mark.parametrize("looked_at", [20_000, 3])
def test_images_of_which_the_store_has_nothing_count_as_none(looked_at, tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO")
    monkeypatch.setattr(visual_context, "_LOOKED_AT", looked_at)
    features = 1 + np.arange(20 * 2 * 3).reshape(20, 2, 3)
    features[[0, 4, 7, 12]] = 0
    features[8, 0] = 0  # its second region is there
    store = FeatureStore(write_store(tmp_path / "store", features))
    assert store.absent(np.arange(20)).nonzero()[0].tolist() == [0, 4, 7, 12]
    table = np.array([[0], [1], [4], [7], [8], [-1], [7], [2], [3], [5], [6]])
    write_image_ids(tmp_path / "ids/train", table, store.keys_sha256)
    assert add(tmp_path).tolist() == table.tolist()
    if looked_at == 3:  # of 0 to 8 the rows 0, 3, 6
        assert "1 of 3 images (33.3 %) that" in caplog.text and "2 of 11 sentences (18.2 %) have none" in caplog.text
    else:
        assert "3 of 9 images (33.3 %) that" in caplog.text and "5 of 11 sentences (45.5 %) have none" in caplog.text


def test_images_side_by_side_are_none_where_all_are_absent(tmp_path, caplog):
    caplog.set_level("INFO")
    features = 1 + np.arange(20 * 2 * 3).reshape(20, 2, 3)
    features[[0, 4]] = 0
    store = FeatureStore(write_store(tmp_path / "store", features))
    table = np.array([[0, 1], [0, 4], [4, -1], *[[1, 2]] * 8])
    write_image_ids(tmp_path / "ids/train", table, store.keys_sha256)
    add(tmp_path)
    assert "2 of 11 sentences (18.2 %) have none" in caplog.text


@pytest.mark.parametrize(
    "flags", [{}, {"images_per_sentence": 3}, {"image_order": "shuffled", "image_seed": 2}, {"image_order": "blank"}]
)
@pytest.mark.parametrize("images", [True, False])
def test_flags_of_images_that_are_not_there_are_told(store, tmp_path, caplog, flags, images):
    context(tmp_path, **flags, **({} if images else {"image_features": None}))
    given = ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in flags.items())
    said = f"{given} changes nothing: without --image-features there are no images."
    assert caplog.messages == ([said] if flags and not images else [])
