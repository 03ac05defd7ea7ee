"""The translation task: images beside binarised text, in one part or several, or none."""

import re
import shutil
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from commands import run_command
from conftest import write_image_ids
from damage import forget_words
from fairseq.data import data_utils
from fairseq.models import MODEL_REGISTRY
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer.transformer_legacy import base_architecture

from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.finder import write_image_ids as write_found_ids
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.paired import PairedFinder
from visual_grounding.tasks.grounded_translation import (
    GroundedTranslationConfig,
    GroundedTranslationTask,
    complete_languages,
)
from visual_grounding.text.words import digest_of_symbols


def make_task(folder: Path, images: bool = True, **flags: object) -> GroundedTranslationTask:
    places = {"image_features": str(folder / "store"), "image_ids": str(folder / "ids")} if images else {}
    values = {"data": str(folder / "bin"), "source_lang": "en", "target_lang": "de", "train_subset": "train",
              "dataset_impl": None, "required_seq_len_multiple": 1, **places, **flags}  # fmt: skip
    return GroundedTranslationTask.setup_task(GroundedTranslationConfig(**values))


def lines_and_images(task: GroundedTranslationTask, split: str) -> list[tuple[str, np.ndarray]]:
    """Source line and image features of each sentence of a split, through its batches."""
    dataset = task.dataset(split)
    found = {}
    for places in dataset.batch_by_size(dataset.ordered_indices(), max_sentences=7):
        batch = dataset.collater([dataset[place] for place in places])
        for row, place in enumerate(batch["id"].tolist()):
            line = task.source_dictionary.string(dataset[place]["source"])
            found[place] = line, batch["net_input"]["visual"]["features"][row].numpy()
    assert sorted(found) == list(range(len(dataset)))
    return [found[place] for place in sorted(found)]


def expected(folder: Path, ids: Path, text: Path) -> list[tuple[str, np.ndarray]]:
    features = FeatureStore(folder / "store").features
    return list(zip(text.read_text().splitlines(), features[ImageIds(ids).ids]))


def check_equal(found: list, wanted: list) -> None:
    assert [line for line, _ in found] == [line for line, _ in wanted]
    np.testing.assert_array_equal(np.stack([image for _, image in found]), np.stack([image for _, image in wanted]))


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_every_sentence_of_a_split_has_the_images_of_its_row(tiny_translation, split):
    task = make_task(tiny_translation)
    task.load_dataset(split)
    folder = tiny_translation
    check_equal(lines_and_images(task, split), expected(folder, folder / "ids" / split, folder / f"text/{split}.en"))
    assert task.image_feature_size == 6


@pytest.fixture
def two_parts(tiny_translation: Path, tmp_path: Path) -> Path:
    """The training set of 48 sentences and, as train1, the validation set of 12; with images of their own."""
    shutil.copytree(tiny_translation / "bin", tmp_path / "bin")
    for path in (tiny_translation / "bin").glob("valid.en-de.*"):
        shutil.copy(path, tmp_path / "bin" / path.name.replace("valid", "train1"))
    (tmp_path / "store").symlink_to(tiny_translation / "store")
    shutil.copytree(tiny_translation / "ids/train", tmp_path / "ids/train")
    shutil.copytree(tiny_translation / "ids/valid", tmp_path / "ids/train1")
    return tmp_path


@pytest.mark.parametrize(("flags", "times"), [({}, 1), ({"upsample_primary": 1}, 1), ({"upsample_primary": 3}, 3)])
def test_training_set_in_two_parts_repeats_images_with_their_text(two_parts, tiny_translation, flags, times):
    """Without `--upsample-primary` fairseq's own task would fail: it takes the first part minus once."""
    task = make_task(two_parts, **flags)
    task.load_dataset("train", combine=True)
    text = tiny_translation / "text"
    first = expected(two_parts, two_parts / "ids/train", text / "train.en")
    second = expected(two_parts, two_parts / "ids/train1", text / "valid.en")
    check_equal(lines_and_images(task, "train"), [*first * times, *second])
    alone = make_task(two_parts, images=False, **flags)
    alone.load_dataset("train", combine=True)
    assert len(alone.dataset("train")) == 48 * times + 12
    with data_utils.numpy_seed(1):
        assert len(alone.dataset("train").ordered_indices()) == 48 * times + 12


@pytest.mark.parametrize("name", ["train.en-de.en.bin", "train1.en-de.de.bin", "train1.en-de.en.idx"])
def test_binarised_text_that_was_cut_is_refused_before_it_is_read(two_parts, name):
    path = two_parts / "bin" / name
    path.write_bytes(path.read_bytes()[:-6])
    with pytest.raises(InputError, match=rf"{name}.* Binarise the text anew\."):
        make_task(two_parts).load_dataset("train", combine=True)
    if "train1" in name:
        make_task(two_parts).load_dataset("train")  # without its further parts


def test_training_set_in_two_parts_needs_a_table_for_each(two_parts):
    shutil.rmtree(two_parts / "ids/train1")
    task = make_task(two_parts)
    with pytest.raises(InputError, match=r"ids/train1 should hold image ids.*visual-grounding retrieve"):
        task.load_dataset("train", combine=True)
    write_image_ids(two_parts / "ids/train1", np.zeros((13, 2)), FeatureStore(two_parts / "store").keys_sha256)
    with pytest.raises(InputError, match=r"train1.en-de has 12 sentences, but image ids in .*train1 have 13 rows"):
        task.load_dataset("train", combine=True)


def find(folder: Path, out: Path, text: list[str]) -> None:
    """A table of images that were found for a text."""
    store = FeatureStore(folder / "store")
    keys = [store.key(0)] * len(text)
    write_found_ids(PairedFinder(store), keys, out, text=text)


@pytest.mark.parametrize("of", ["source", "target", "source, cut in pieces", "another"])
def test_images_that_were_found_for_another_text_are_noticed(tiny_translation, tmp_path, caplog, of):
    source, target = (
        (tiny_translation / f"text/train.{language}").read_text(encoding="utf-8").splitlines()
        for language in ("en", "de")
    )
    cut = [line.upper().replace("B", "B@@ ") for line in source]
    text = {"source": source, "target": target, "source, cut in pieces": cut, "another": ["other words"] * 48}[of]
    find(tiny_translation, tmp_path / "ids/train", text)
    make_task(tiny_translation, image_ids=str(tmp_path / "ids")).load_dataset("train")
    said = r"found for another text than train.en-de, of as many lines: on a sample they are \d.\d % alike"
    assert len(re.findall(said, caplog.text)) == (of == "another"), caplog.text


def test_part_of_a_training_set_with_images_of_another_text_is_noticed(two_parts, tiny_translation, caplog):
    lines = [(tiny_translation / f"text/{name}.en").read_text().splitlines() for name in ("train", "valid")]
    for changed, said in ((None, []), (0, ["train"]), (1, ["train1"])):
        texts = [["nothing like it"] * len(text) if part == changed else text for part, text in enumerate(lines)]
        for name, text in zip(("train", "train1"), texts):
            find(two_parts, two_parts / f"{changed}" / name, text)
        caplog.clear()
        task = make_task(two_parts, image_ids=str(two_parts / f"{changed}"), upsample_primary=2)
        task.load_dataset("train", combine=True)
        assert re.findall(r"found for another text than (\w+)\.en-de", caplog.text) == said


@pytest.mark.parametrize("times", [0, -2])
def test_training_set_that_is_taken_less_than_once_is_refused(tiny_translation, times):
    with pytest.raises(InputError, match=f"--upsample-primary should be at least 1, but is {times}"):
        make_task(tiny_translation, upsample_primary=times)


def test_task_without_images_leaves_batches_as_they_are(tiny_translation):
    task = make_task(tiny_translation, images=False)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    batch = dataset.collater([dataset[0], dataset[1]])
    assert sorted(batch["net_input"]) == ["prev_output_tokens", "src_lengths", "src_tokens"]
    assert task.image_feature_size == 0
    digests = {
        side: digest_of_symbols(words.symbols)
        for side, words in (("source", task.source_dictionary), ("target", task.target_dictionary))
    }
    assert task.state_dict() == {"image_features": None, "dictionaries": digests} and len(set(digests.values())) == 2


@pytest.mark.parametrize("language", ["en", "de"])
def test_task_refuses_a_checkpoint_of_the_same_words_in_another_order(tiny_translation, tmp_path, language):
    state = make_task(tiny_translation).state_dict()
    shutil.copytree(tiny_translation / "bin", tmp_path / "bin")
    (tmp_path / "store").symlink_to(tiny_translation / "store")
    (tmp_path / "ids").symlink_to(tiny_translation / "ids")
    make_task(tmp_path).load_state_dict(state)
    path = tmp_path / f"bin/dict.{language}.txt"
    path.write_text("".join(sorted(path.read_text().splitlines(True))))
    with pytest.raises(InputError, match=f"{path} should have the words that the checkpoint was trained with"):
        make_task(tmp_path).load_state_dict(state)


def test_task_refuses_a_negative_seed_of_images(tiny_translation):
    with pytest.raises(InputError, match="--image-seed should be 0 or more, but is -1"):
        make_task(tiny_translation, image_seed=-1)


def test_task_names_the_languages_that_are_there(tiny_translation):
    with pytest.raises(
        InputError, match=r"should have dict\.fr\.txt, .*: those of de and en are there\. .*--target-lang"
    ):
        make_task(tiny_translation, target_lang="fr")


@pytest.mark.parametrize(
    ("named", "pairs", "found"),
    [
        ((None, None), ["en-de"], ("en", "de")),
        (("en", None), ["en-de"], ("en", "de")),
        ((None, "de"), ["en-de"], ("en", "de")),
        (("de", None), ["en-de"], ("de", "en")),
        ((None, "en"), ["en-de"], ("de", "en")),
        ((None, "fr"), ["en-de", "en-fr"], ("en", "fr")),
        (("fr", "de"), ["en-de"], ("fr", "de")),  # its dictionary is missed elsewhere
        ((None, "fr"), ["en-de"], "one pair of languages with fr, but holds en-de. Name both"),
        (("en", None), ["en-de", "en-fr"], "one pair of languages with en, but holds en-de, en-fr. Name both"),
        ((None, None), ["en-de", "en-fr"], "one pair of languages, where none is named, but holds en-de, en-fr. Name"),
        (("en", None), [], "one pair of languages with en, but holds none. Name both .* --source-lang and --target"),
    ],
)
def test_languages_that_are_not_named_are_those_of_the_text(tmp_path, named, pairs, found):
    for pair in pairs:
        for language in pair.split("-"):
            (tmp_path / f"train.{pair}.{language}.idx").touch()
    cfg = GroundedTranslationConfig(data=str(tmp_path), source_lang=named[0], target_lang=named[1])
    if isinstance(found, tuple):
        complete_languages(cfg)
        assert (cfg.source_lang, cfg.target_lang) == found
    else:
        with pytest.raises(InputError, match=f"{tmp_path} should hold binarised text of {found}"):
            GroundedTranslationTask.setup_task(cfg)


def test_task_names_the_folder_that_is_not_there(tmp_path):
    cfg = GroundedTranslationConfig(data=str(tmp_path / "bin"), source_lang="en", target_lang="de")
    with pytest.raises(InputError, match="bin should be a folder of binarised text, as fairseq-preprocess writes it"):
        GroundedTranslationTask.setup_task(cfg)


def test_task_refuses_models_that_find_images():
    for name in ("visual_semantic_embedding", "token_image_matching"):
        flags = Namespace(text_encoder="sru" if name.startswith("visual") else "some/folder", text_encoder_freeze=False)
        with pytest.raises(InputError, match=f"{name} is a .* belongs to --task image_text_matching: it finds images"):
            MODEL_REGISTRY[name].build_model(flags, object())


def test_task_names_the_split_that_is_not_there(tiny_translation):
    with pytest.raises(
        InputError, match=r"bin should hold .* the split 'dev'.*none for en-de\. It has test, train, valid\.$"
    ):
        make_task(tiny_translation).load_dataset("dev")
    with pytest.raises(InputError, match=r"bin should hold .* the split 'Train'.*It has test, train, valid\.$"):
        make_task(tiny_translation, train_subset="Train").load_dataset("Train", epoch=2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"image_ids": None},
            "--image-ids isn't given. fairseq-interactive finds .* it --retriever and --image-index, or --image-finder",
        ),
        ({"image_features": None}, "--image-ids and --image-features belong together.*--image-features isn't given"),
        ({"image_ids": "a:b"}, r"as many folders as there are of text \(1: .*bin\), but names 2: a:b"),
    ],
)
def test_task_refuses_flags_that_do_not_belong_together(tiny_translation, flags, message):
    with pytest.raises(InputError, match=message):
        make_task(tiny_translation, **flags)


def test_task_refuses_a_model_that_takes_text_alone(tiny_translation):
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_embed_dim": 8, "decoder_embed_dim": 8,
             "encoder_attention_heads": 1, "decoder_attention_heads": 1}  # fmt: skip
    flags = Namespace(arch="transformer", _name="transformer", **sizes)
    base_architecture(flags)
    assert isinstance(make_task(tiny_translation, images=False).build_model(flags), TransformerModel)
    with pytest.raises(InputError, match=r"TransformerModel .* takes text alone. Leave both flags out"):
        make_task(tiny_translation).build_model(flags)


@pytest.mark.parametrize("language", ["en", "de"])
def test_text_of_another_dictionary_in_a_second_folder_is_refused(tiny_translation, tmp_path, language):
    shutil.copytree(tiny_translation / "bin", tmp_path / "bin")
    data = f"{tiny_translation / 'bin'}:{tmp_path / 'bin'}"
    make_task(tiny_translation, images=False, data=data)
    path = tmp_path / f"bin/dict.{language}.txt"
    path.write_text("".join(path.read_text().splitlines(True)[::-1]))
    with pytest.raises(
        InputError, match=rf"{path} should have the symbols of .*txt, in their order, but hasn't: each ep"
    ):
        make_task(tiny_translation, images=False, data=data)


@pytest.mark.parametrize("language", ["en", "de"])
def test_text_that_is_not_cut_as_its_dictionary_is_told(tiny_translation, tmp_path, caplog, language):
    shutil.copytree(tiny_translation / "bin", tmp_path / "bin")
    forget_words(tmp_path / f"bin/valid.en-de.{language}")
    make_task(tiny_translation, data=str(tmp_path / "bin")).load_dataset("valid")
    assert re.findall(r"in (.*) are <unk>: the dictionary", caplog.text) == [f"valid.en-de.{language}"]


@pytest.mark.parametrize("form", ["cached", "lazy"])
def test_text_in_fairseqs_older_forms_is_loaded_without_a_look_at_its_words(tiny_translation, tmp_path, form):
    done = run_command(
        "fairseq-preprocess", "-s", "en", "-t", "de", "--destdir", tmp_path / "bin", "--workers", 1,
        "--dataset-impl", form, "--validpref", tiny_translation / "text/valid",
        "--srcdict", tiny_translation / "bin/dict.en.txt", "--tgtdict", tiny_translation / "bin/dict.de.txt",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    find(tiny_translation, tmp_path / "ids/valid", (tiny_translation / "text/valid.en").read_text().splitlines())
    images = {"image_features": str(tiny_translation / "store"), "image_ids": str(tmp_path / "ids")}
    task = make_task(tmp_path, dataset_impl=form, **images)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    if dataset.supports_prefetch:
        dataset.prefetch(range(12))
    assert len(dataset.collater([dataset[row] for row in range(12)])["id"]) == 12


@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        ({}, True),
        ({"eval_bleu": True}, False),
        ({"disable_validation": True}, False),
        ({"best_checkpoint_metric": "loss"}, False),
    ],
)
def test_bleu_that_nobody_asks_for_chooses_no_checkpoint(tiny_translation, flags, refused):
    task = make_task(tiny_translation, **{"best_checkpoint_metric": "bleu", "disable_validation": False, **flags})
    with pytest.raises(InputError, match="bleu needs --eval-bleu") if refused else nullcontext():
        task.begin_epoch(1, None)
    task._others_criterion = True  # which may tell BLEU by itself
    task.begin_epoch(1, None)
