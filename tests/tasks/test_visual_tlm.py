"""The task of pre-training: pairs of languages, their images, masks; and what it refuses."""

import json
import re
import shutil
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_image_ids, write_store
from damage import forget_words
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq_cli.train import main as fairseq_train
from small_pairs import KINDS
from small_streams import SIZES

from visual_grounding import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.finder import write_image_ids as write_found_ids
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.paired import PairedFinder
from visual_grounding.storage.checkpoints import load_checkpoint
from visual_grounding.tasks.visual_tlm import VisualTLMConfig, VisualTLMTask
from visual_grounding.text.tokenizer_bridge import MASK


def make_task(folder: Path, images: bool = True, **flags: object) -> VisualTLMTask:
    places = {"image_features": str(folder / "store"), "image_ids": str(folder / "ids")} if images else {}
    values = {"data": str(folder / "bin"), "lang_pairs": "en-de,en-fr", "train_subset": "train", "seed": 1,
              "num_workers": 0, "save_dir": "nowhere", "restore_file": "checkpoint_last.pt", "checkpoint_suffix": "",
              "continue_once": None, "finetune_from_model": None, **places, **flags}  # fmt: skip
    return VisualTLMTask.setup_task(VisualTLMConfig(**values))


@pytest.fixture
def copied(tiny_pairs, tmp_path) -> Path:
    """The same world, to be changed."""
    for name in ("bin", "ids", "text"):
        shutil.copytree(tiny_pairs / name, tmp_path / name)
    (tmp_path / "store").symlink_to(tiny_pairs / "store")
    return tmp_path


def whole_batch(task: VisualTLMTask, split: str, epoch: int = 1) -> dict:
    dataset = task.dataset(split)
    dataset.set_epoch(epoch)
    return dataset.collater([dataset[index] for index in range(len(dataset))])


def originals(task: VisualTLMTask, batch: dict) -> list[str]:
    """Streams as they were before they were masked."""
    pad = task.dictionary.pad()
    tokens = torch.where(batch["word_targets"] != pad, batch["word_targets"], batch["net_input"]["tokens"])
    return [task.dictionary.string(row[row != pad]) for row in tokens]


@pytest.mark.parametrize("lang_pairs", ["en-de,en-fr", "en-fr", "fr-en", "en-fr,de-en"])
def test_streams_hold_the_sentences_and_images_of_every_pair(tiny_pairs, lang_pairs, tmp_path):
    pairs = [pair.split("-") for pair in lang_pairs.split(",")]
    for source, target in pairs:  # a table for each pair; of one pair as in translation
        for name in (f"valid.{source}-{target}", "valid"):
            if not (tmp_path / "ids" / name).exists():
                shutil.copytree(tiny_pairs / "ids/valid", tmp_path / "ids" / name)
    task = make_task(tiny_pairs, lang_pairs=lang_pairs, image_ids=str(tmp_path / "ids"))
    task.load_dataset("valid")
    batch, expected = whole_batch(task, "valid"), []
    for source, target in pairs:
        sides = [(tiny_pairs / f"text/valid.{each}").read_text().splitlines() for each in (source, target)]
        expected += [f"{first}{second}" for first, second in zip(*sides)]
    assert [line.replace(" ", "") for line in originals(task, batch)] == [line.replace(" ", "") for line in expected]
    assert task.stream_languages == sorted({language for pair in pairs for language in pair})
    numbers = batch["net_input"]["languages"]
    found = [(task.stream_languages[row[0]], task.stream_languages[row[3]]) for row in numbers.tolist()]
    assert {first for first, _ in found} == {source for source, _ in pairs}
    features = FeatureStore(tiny_pairs / "store").features
    rows = np.tile(ImageIds(tiny_pairs / "ids/valid").ids, (len(pairs), 1))
    np.testing.assert_array_equal(batch["net_input"]["visual"]["features"].numpy(), features[rows])


def test_pair_is_that_of_the_data_where_none_is_named(tiny_pairs, tmp_path):
    for path in (tiny_pairs / "bin").glob("*fr*"):
        assert path.is_file()
    shutil.copytree(tiny_pairs / "bin", tmp_path / "bin", ignore=shutil.ignore_patterns("*en-fr*"))
    (tmp_path / "bin/test.en-None.en.idx").touch()  # fairseq-preprocess --only-source
    assert make_task(tmp_path, images=False, lang_pairs=None).pairs == [("en", "de")]


def test_masks_change_in_training_and_stay_in_validation(tiny_pairs):
    task = make_task(tiny_pairs)
    for split, changes in (("train", True), ("valid", False)):
        task.load_dataset(split)
        first, second = whole_batch(task, split), whole_batch(task, split, epoch=2)
        for name in ("word_targets", "label_targets"):
            assert torch.equal(first[name], second[name]) != changes, (split, name)
        assert task.dataset(split).can_reuse_epoch_itr_across_epochs != changes
    again = make_task(tiny_pairs, seed=7)
    again.load_dataset("valid")
    assert torch.equal(first["word_targets"], whole_batch(again, "valid")["word_targets"])
    mask = task.dictionary.index(MASK)
    chosen = first["word_targets"] != task.dictionary.pad()
    assert ((first["net_input"]["tokens"] == mask) == chosen).all() and chosen.any()
    assert torch.equal(first["net_input"]["visual"]["masked"], first["label_targets"] >= 0)


def test_training_goes_on_in_the_middle_of_an_epoch_as_if_it_had_not_stopped(tiny_pairs, pretrain_flags, tmp_path):
    """Two epochs of six batches; masks, batches and dropout of the second are those of one training at a stretch."""
    metrics.reset()

    def train(name: str, *more: object) -> dict[str, torch.Tensor]:
        flags = pretrain_flags(tiny_pairs, tmp_path / name, "--batch-size", 16, "--disable-validation", *more)
        args = options.parse_args_and_arch(options.get_training_parser(), [str(flag) for flag in flags])
        fairseq_train(convert_namespace_to_omegaconf(args))
        return load_checkpoint(tmp_path / name / "checkpoint_last.pt")["model"]

    whole, first = train("whole"), train("parts", "--max-update", 8)
    second = train("parts")
    assert all(torch.equal(whole[name], second[name]) for name in whole)
    assert any(not torch.equal(first[name], second[name]) for name in whole)


def test_chosen_words_of_training_are_masked_random_or_kept(tiny_pairs):
    """80, 10 and 10 %; a random word may be the word itself."""
    task = make_task(tiny_pairs, mask_prob=1.0)
    task.load_dataset("train")
    batch = whole_batch(task, "train")
    chosen = batch["word_targets"] != task.dictionary.pad()
    seen, own = batch["net_input"]["tokens"][chosen], batch["word_targets"][chosen]
    masked, kept = (seen == task.dictionary.index(MASK)).float().mean(), (seen == own).float().mean()
    assert len(seen) > 500 and masked.item() == pytest.approx(0.8, abs=0.07)
    assert kept.item() == pytest.approx(0.11, abs=0.06) and 0.03 < 1 - masked - kept < 0.17


def test_regions_stay_as_they_are_where_none_is_to_be_masked(tiny_pairs):
    task = make_task(tiny_pairs, visual_unmasked=True, mask_prob=0.5)
    task.load_dataset("train")
    batch = whole_batch(task, "train")
    assert (batch["label_targets"] >= 0).any() and not batch["net_input"]["visual"]["masked"].any()


def test_mask_is_added_where_the_dictionary_lacks_it_and_found_where_it_has_it(copied):
    lacking = make_task(copied, images=False)
    for path in (copied / "bin").glob("dict.*"):
        path.write_text(f"{path.read_text()}{MASK} 1\n")
    having = make_task(copied, images=False)
    assert lacking.dictionary.index(MASK) == having.dictionary.index(MASK) == len(having.dictionary) - 1
    assert lacking.state_dict() != having.state_dict()  # by the words of the data: the added one isn't among them


def test_training_set_of_several_parts_has_a_table_for_each(copied):
    for pair in ("en-de", "en-fr"):
        for path in (copied / "bin").glob(f"valid.{pair}.*"):
            shutil.copy(path, path.with_name(path.name.replace("valid", "train1")))
        shutil.copytree(copied / "ids/valid", copied / f"ids/train1.{pair}")
    task = make_task(copied)
    task.load_dataset("train", combine=True)
    assert len(task.dataset("train")) == 2 * (48 + 12)
    shutil.rmtree(copied / "ids/train1.en-fr")
    with pytest.raises(InputError, match=r"ids/train1\.en-fr should hold image ids"):
        make_task(copied).load_dataset("train", combine=True)


def test_text_alone_has_no_images_in_its_batches(tiny_pairs):
    task = make_task(tiny_pairs, images=False)
    task.load_dataset("train")
    batch = whole_batch(task, "train")
    assert sorted(batch["net_input"]) == ["languages", "positions", "tokens"] and "label_targets" not in batch
    assert (task.image_feature_size, task.image_labels) == (0, 0)


def test_images_found_for_another_text_are_noticed(copied, caplog):
    store = FeatureStore(copied / "store")
    lines = ["nothing like it at all"] * 12
    shutil.rmtree(copied / "ids/valid.en-fr")
    write_found_ids(PairedFinder(store), [store.key(0)] * 12, copied / "ids/valid.en-fr", text=lines)
    make_task(copied).load_dataset("valid")
    assert "found for another text than valid.en-fr, of as many lines" in caplog.text


def test_table_of_another_number_of_sentences_is_refused_by_its_pair(copied):
    shutil.rmtree(copied / "ids/valid.en-fr")
    write_image_ids(copied / "ids/valid.en-fr", np.zeros((13, 1)), FeatureStore(copied / "store").keys_sha256)
    with pytest.raises(
        InputError, match=r"valid\.en-fr has 12 sentences, but image ids in .*valid\.en-fr have 13 rows"
    ):
        make_task(copied).load_dataset("valid")


@pytest.mark.parametrize("lacking", ["boxes", "labels"])
def test_store_without_boxes_or_labels_is_refused_by_name(tiny_pairs, tmp_path, lacking):
    columns = {"boxes": np.zeros((24, 3, 4), np.float32), "labels": np.zeros((24, 3), np.int32)}
    del columns[lacking]
    store = write_store(tmp_path / "store", np.ones((24, 3, 6)), columns=columns)
    with pytest.raises(InputError, match=f"{lacking} of regions are needed for visual translation language modelling"):
        make_task(tiny_pairs, image_features=str(store))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"lang_pairs": "en-de,en"}, r"pairs of two languages.* but is 'en-de,en': 'en'"),
        ({"lang_pairs": "en-en"}, r"pairs of two languages.* but is 'en-en'"),
        ({"lang_pairs": "en-de,en-de"}, r"each once.* but is 'en-de,en-de': 'en-de'"),
        ({"lang_pairs": "en-it"}, r"--lang-pairs should be pairs that .*bin holds, .* en-de, en-fr, but has en-it"),
        ({"lang_pairs": "en-de,de-it"}, r"which are en-de, en-fr, but has de-it"),
        ({"lang_pairs": None}, r"one pair of languages .* but holds en-de, en-fr. Name .* --lang-pairs en-de,en-fr$"),
        ({"lang_pairs": None, "data": "nowhere"}, "nowhere should hold binarised pairs.* but holds none"),
        ({"data": None}, "needs a folder of binarised pairs"),
        ({"mask_prob": 0.0}, "--mask-prob should be more than 0 and at most 1, but is 0.0"),
        ({"image_ids": None}, "--image-features and --image-ids belong together, but --image-ids isn't given"),
    ],
)
def test_task_refuses_flags_that_make_no_sense(tiny_pairs, flags, message):
    with pytest.raises(InputError, match=message):
        make_task(tiny_pairs, **flags)


def test_split_that_is_not_there_is_refused_with_those_that_are(tiny_pairs):
    with pytest.raises(
        InputError, match=r"bin should hold .* split 'val', .*none for en-de\. It has test, train, valid\.$"
    ):
        make_task(tiny_pairs).load_dataset("val")


def test_task_refuses_dictionaries_that_differ(copied):
    path = copied / "bin/dict.fr.txt"
    lines = path.read_text().splitlines(True)
    path.write_text("".join([*lines[1:2], lines[0], *lines[2:]]))
    first, second = (line.split()[0] for line in lines[:2])
    said = f"dict.de.txt and .*dict.fr.txt differ: number 4 is '{first}' in one and '{second}' in the other"
    with pytest.raises(InputError, match=said):
        make_task(copied)
    path.write_text("".join(lines[:-1]))
    with pytest.raises(InputError, match=r"number 15 is '.*' in one and '<unk>' in the other"):
        make_task(copied)
    path.unlink()
    with pytest.raises(InputError, match=r"bin/dict.fr.txt is missing: the languages of the stream should share a"):
        make_task(copied)


def test_task_refuses_binarised_text_that_was_cut(copied):
    path = copied / "bin/valid.en-fr.fr.bin"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(InputError, match=r"valid.en-fr.fr.bin should have [\d,]+ bytes, as .*fr.idx says, but has"):
        make_task(copied).load_dataset("valid")


def test_task_names_the_split_or_the_side_that_is_not_there(copied):
    with pytest.raises(InputError, match=r"hold binarised text of the split 'dev'.*none for en-de"):
        make_task(copied).load_dataset("dev")
    for path in (copied / "bin").glob("valid.en-fr.fr.*"):
        path.unlink()
    with pytest.raises(InputError, match=r"both sides of valid.en-fr, .* but there is no fr"):
        make_task(copied).load_dataset("valid")


def test_checkpoint_of_other_words_or_labels_is_refused(copied):
    state = make_task(copied).state_dict()
    make_task(copied).load_state_dict(state)
    (copied / "store").unlink()
    columns = {"boxes": np.zeros((24, 3, 4), np.float32), "labels": np.zeros((24, 3), np.int32)}
    write_store(copied / "store", np.ones((24, 3, 6)), columns=columns, label_names=[*KINDS, "sky"])
    with pytest.raises(InputError, match=r"label_names.txt should have the words that the checkpoint was trained with"):
        make_task(copied).load_state_dict(state)
    for path in (copied / "bin").glob("dict.*"):
        path.write_text("".join(sorted(path.read_text().splitlines(True))))
    with pytest.raises(InputError, match=r"dict.de.txt should have the words that the checkpoint was trained with"):
        make_task(copied, images=False).load_state_dict(state)


def test_tags_of_images_are_refused_since_labels_are_no_input(tiny_pairs):
    task = make_task(tiny_pairs, image_tags="words")
    args = Namespace(arch="vtlm_tiny", _name="vtlm_tiny", **SIZES)
    ARCH_CONFIG_REGISTRY["vtlm_tiny"](args)
    with pytest.raises(InputError, match=r"--image-tags is for a model that reads tags.* but VTLMModel doesn't"):
        task.build_model(args)


def test_longer_sentences_than_the_model_has_positions_are_left_out_by_name(tiny_pairs):
    task = make_task(tiny_pairs)
    task.load_dataset("train")
    args = Namespace(arch="vtlm_tiny", _name="vtlm_tiny", max_source_positions=6, **SIZES)
    ARCH_CONFIG_REGISTRY["vtlm_tiny"](args)
    model = task.build_model(args)
    dataset = task.dataset("train")
    kept, left_out = dataset.filter_indices_by_size(dataset.ordered_indices(), model.max_positions())
    words = [len(line.split()) for line in (tiny_pairs / "text/train.en").read_text().splitlines()]
    assert len(left_out) == 2 * sum(count + 2 > 6 for count in words) > 0
    assert len(kept) + len(left_out) == 2 * 48


def test_other_heads_than_those_of_the_checkpoint_that_is_fine_tuned_are_refused(tiny_pairs, tmp_path):
    def built(**flags):
        args = Namespace(arch="vtlm_tiny", _name="vtlm_tiny", **{**SIZES, **flags})
        ARCH_CONFIG_REGISTRY["vtlm_tiny"](args)
        return args, make_task(tiny_pairs, finetune_from_model=str(tmp_path / "first.pt")).build_model(args)

    args, model = built()
    torch.save({"cfg": {"model": args}, "model": model.state_dict()}, tmp_path / "first.pt")
    built()
    heads = args.encoder_attention_heads
    with pytest.raises(InputError, match=rf"--encoder-attention-heads should be {heads}, as .*first\.pt was trained"):
        built(encoder_attention_heads=2 * heads)
    args.encoder_attention_heads = 2 * heads
    task = make_task(tiny_pairs, finetune_from_model=str(tmp_path / "first.pt"))
    task.build_model(args, from_checkpoint=True)  # one that is loaded has nothing to do with what would be restored


def test_flags_of_images_are_refused_without_them(tiny_pairs):
    with pytest.raises(InputError, match="--visual-unmasked is about the regions of images: give --image-features"):
        make_task(tiny_pairs, images=False, visual_unmasked=True)
    make_task(tiny_pairs, visual_unmasked=True)
    with pytest.raises(InputError, match="--image-tag-score chooses among the tags of images: give --image-tags, too"):
        make_task(tiny_pairs, image_tag_score=0.5)


def test_words_that_replace_others_are_never_special_symbols(tiny_pairs):
    dataset = (task := make_task(tiny_pairs, mask_prob=1.0)) and (task.load_dataset("train"), task.dataset("train"))[1]
    found = torch.cat([whole_batch(task, "train", epoch)["net_input"]["tokens"].flatten() for epoch in range(1, 9)])
    dictionary = task.dictionary
    assert len(dataset) and dictionary.unk() not in found and dictionary.bos() not in found


def test_training_pairs_come_in_another_order_each_epoch_and_others_in_theirs(tiny_pairs):
    task = make_task(tiny_pairs)
    for split, shuffled in (("train", True), ("valid", False)):
        task.load_dataset(split)
        dataset = task.dataset(split)
        np.random.seed(1)
        first = dataset.ordered_indices()
        np.random.seed(2)
        second = dataset.ordered_indices()
        assert sorted(first) == sorted(second) and (list(first) != list(second)) == shuffled, split


def test_each_epoch_reads_its_own_folder_of_several(tiny_pairs, tmp_path):
    shutil.copytree(tiny_pairs / "bin", tmp_path / "bin")
    for path in (tiny_pairs / "bin").glob("valid.*"):
        shutil.copy(path, tmp_path / "bin" / path.name.replace("valid", "train"))
    data = f"{tiny_pairs / 'bin'}:{tmp_path / 'bin'}"
    task = make_task(tiny_pairs, images=False, data=data)
    sizes = []
    for epoch in (1, 2, 3):
        task.load_dataset("train", epoch)
        sizes.append(len(task.dataset("train")))
    assert sizes == [96, 24, 96]
    path = tmp_path / "bin/dict.en.txt"
    path.write_text("".join(sorted(path.read_text().splitlines(True), reverse=True)))
    with pytest.raises(
        InputError, match=rf"{path} should have the symbols of .*dict\.en\.txt, in their order, but has"
    ):
        make_task(tiny_pairs, images=False, data=data)


@pytest.mark.parametrize("language", ["en", "fr"])
def test_text_that_is_not_cut_as_its_dictionary_is_told(copied, caplog, language):
    forget_words(copied / f"bin/valid.en-fr.{language}")
    make_task(copied).load_dataset("valid")
    assert re.findall(r"in (.*) are <unk>: the dictionary", caplog.text) == [f"valid.en-fr.{language}"]


@pytest.mark.parametrize(
    ("method", "order", "said"),
    [("paired", "congruent", False), ("dense", "congruent", True), ("dense", "shuffled", False),
     ("dense", "blank", False), ("my_plugin:ByNumber", "congruent", False)],
)  # fmt: skip
def test_images_that_were_found_by_the_words_that_are_asked_for_are_told(copied, caplog, method, order, said):
    for path in (copied / "ids").glob("valid*/meta.json"):
        meta = json.loads(path.read_text())
        path.write_text(json.dumps({**meta, "signature": f"retrieve|method:{method}|n:1"}))
    make_task(copied, image_order=order).load_dataset("valid")
    assert caplog.text.count("were found by the words of each line, and some of these are hidden") == 2 * said
