"""Grounded language modelling: every strategy by its flags, masks of tables, finders in the loader, what is refused."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from conftest import write_store
from damage import forget_words
from small_grounded import IMAGES, NOUNS, WORDS, make_encoder, make_task, make_world, model_flags, whole
from small_word_vectors import write_vectors

from visual_grounding.cli.main import main
from visual_grounding.data.caption_mixture import draw_captions
from visual_grounding.data.image_order import derangement
from visual_grounding.data.text_of_one_language import warn_of_unknown
from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.image_ids import ImageIds


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


def lines_of(task, split):
    return [task.dictionary.string(task.dataset(split)[number]["tokens"]) for number in range(len(task.dataset(split)))]


def lines_of_split(world, split):
    task = make_task(world, images=False)
    task.load_dataset(split)
    return lines_of(task, split)


def test_paired_lines_get_their_images(world):
    task = make_task(world)
    batch = whole(task, "valid")
    table, store = ImageIds(world / "ids/valid"), FeatureStore(world / "store")
    assert batch["net_input"]["visual"]["features"].shape == (12, 2, 2, 6)
    features, absent = store.gather(np.array(table.ids))
    assert np.array_equal(batch["net_input"]["visual"]["features"].numpy(), features)
    assert np.array_equal(batch["net_input"]["visual"]["padding_mask"].numpy(), absent)
    assert batch["net_input"]["visual"]["padding_mask"][-1].all()
    assert task.image_feature_size == 6 and task.max_positions() == 19


def test_no_grounding_has_no_images(world):
    task = make_task(world, images=False, data=str(world / "text"))
    assert "visual" not in whole(task, "train")["net_input"]
    task = make_task(world, image_order="blank")
    assert whole(task, "train")["net_input"]["visual"]["padding_mask"].all()


def test_fewer_images_and_others_by_flags(world):
    assert whole(make_task(world, images_per_sentence=1), "valid")["net_input"]["visual"]["features"].shape[1] == 1
    own = whole(make_task(world), "valid")["net_input"]["visual"]["features"]
    others = whole(make_task(world, image_order="shuffled"), "valid")["net_input"]["visual"]["features"]
    assert not torch.equal(own, others)


def test_captions_are_mixed_with_as_many_lines_of_text(world):
    task = make_task(world, data=str(world / "text"), caption_data=str(world / "bin"))
    batch = whole(task, "train")
    assert len(batch["id"]) == 40
    absent = batch["net_input"]["visual"]["padding_mask"].flatten(1).all(dim=1)
    assert absent[:20].all() and (~absent[20:]).sum() >= 19
    text, captions = make_task(world, images=False, data=str(world / "text")), make_task(world)
    text.load_dataset("train")
    captions.load_dataset("train")
    mixed, plain, theirs = lines_of(task, "train"), lines_of(text, "train"), lines_of(captions, "train")
    assert mixed[:20] == plain
    drawn = draw_captions(40, 20, 1)
    assert mixed[20:] == [theirs[number] for number in drawn]
    store, ids = FeatureStore(world / "store"), np.array(ImageIds(world / "ids/train").ids)[drawn]
    assert np.array_equal(batch["net_input"]["visual"]["features"][20:].numpy(), store.gather(ids)[0])
    # Validation is text alone; captions have a subset of their own.
    assert "visual" not in whole(task, "valid")["net_input"] and len(whole(task, "valid")["id"]) == 6
    paired = whole(task, "captions-valid")
    assert torch.equal(paired["net_input"]["src_tokens"], whole(captions, "valid")["net_input"]["src_tokens"])
    assert torch.equal(
        paired["net_input"]["visual"]["features"], whole(captions, "valid")["net_input"]["visual"]["features"]
    )


def test_each_epoch_mixes_in_the_captions_that_come_next(world, tmp_path, caplog):
    """Also of a split that isn't called train."""
    captions = make_task(world, max_pieces=6)
    captions.load_dataset("train")
    world = shutil.copytree(world, tmp_path / "world")
    for path in [*world.glob("*/train.*"), world / "ids/train"]:
        path.rename(path.with_name(path.name.replace("train", "other")))
    for path in world.glob("text/valid.*"):
        shutil.copy(path, path.with_name(path.name.replace("valid", "test")))
    flags = {"data": str(world / "text"), "caption_data": str(world / "bin"), "train_subset": "other", "max_pieces": 6}
    caplog.clear()
    task = make_task(world, **flags)
    task.load_dataset("other")
    dataset, mixed = task.dataset("other"), []
    for epoch in (1, 2):
        batches = task.get_batch_iterator(dataset, max_sentences=40, seed=1, epoch=epoch)
        (batch,) = batches.next_epoch_itr(shuffle=False)
        mixed += lines_of(task, "other")[20:]
        assert dataset.sizes.tolist() == [len(dataset[number]["tokens"]) for number in range(40)]
        ids = np.array(ImageIds(world / "ids/other").ids)[draw_captions(40, 20, 1, 20 * (epoch - 1))]
        features = batch["net_input"]["visual"]["features"][batch["id"].argsort()][20:]
        assert np.array_equal(features.numpy(), FeatureStore(world / "store").gather(ids)[0])
    assert len(mixed) == 40 and sorted(mixed) == sorted(lines_of(captions, "train"))
    cut = [record.getMessage() for record in caplog.records if "are cut at --max-pieces" in record.getMessage()]
    assert len(cut) == len(set(cut)) == 2  # of the text, and of all captions, once
    assert "visual" not in whole(task, "test")["net_input"] and len(task.dataset("test")) == 6


def test_the_seed_of_training_draws_what_is_hidden_and_mixed(world):
    """And nothing in validation."""
    mixed = {"data": str(world / "text"), "caption_data": str(world / "bin")}
    tasks = {seed: make_task(world, seed=seed, grounding_objective="both", mask_prob=0.4) for seed in (1, 2)}
    for key in ("hidden_words", "hidden_regions", "region_side"):
        one, other = (whole(task, "train")[key] for task in tasks.values())
        assert one.any() and not torch.equal(one, other), key
        assert torch.equal(*(whole(task, "valid")[key] for task in tasks.values())), key
    drawn = []
    for seed in (1, 2):
        task = make_task(world, seed=seed, **mixed)
        task.load_dataset("train")
        drawn.append(task.dataset("train").dataset.dataset.drawn.tolist())
    assert drawn == [draw_captions(40, 20, seed).tolist() for seed in (1, 2)]


def test_as_many_regions_are_hidden_as_the_flag_says(world):
    def hidden(share):
        batch = whole(make_task(world, grounding_objective="jmrm", region_mask_prob=share), "train")
        present = ~batch["net_input"]["visual"]["padding_mask"]
        assert not (batch["hidden_regions"] & ~present).any()
        return batch["hidden_regions"].flatten(1).sum(dim=1), present.flatten(1).sum(dim=1)  # (B,) each

    of_all, there = hidden(1.0)
    assert torch.equal(of_all, there) and there.max() == 4
    of_none, there = hidden(1e-9)
    assert torch.equal(of_none, there.clamp(max=1))  # one at least
    of_half, there = hidden(0.5)
    assert of_none.sum() < of_half.sum() < of_all.sum() and 0.35 < of_half.sum() / there.sum() < 0.65


def test_lines_are_in_random_order_in_training_alone(world):
    task = make_task(world)
    orders = {}
    for split in ("train", "valid"):
        task.load_dataset(split)
        dataset = task.dataset(split)
        for seed in (1, 2):
            np.random.seed(seed)
            orders[split, seed] = dataset.ordered_indices().tolist()
        lengths = dataset.sizes[orders[split, 1]]
        assert (np.diff(lengths) >= 0).all() and sorted(orders[split, 1]) == list(range(len(dataset)))
    assert orders["train", 1] != orders["train", 2] and orders["valid", 1] == orders["valid", 2]
    assert orders["valid", 1] == np.argsort(task.dataset("valid").sizes, kind="stable").tolist()


@pytest.fixture(scope="module")
def associative(world, tmp_path_factory):
    """Raw text of `bin/`, captions, word vectors; tables of images found for what a mask leaves."""
    folder = tmp_path_factory.mktemp("associative")
    task = make_task(world, images=False)
    for split in ("train", "valid"):
        task.load_dataset(split)
        text = [line.replace(" ##", "") for line in lines_of(task, split)]
        (folder / f"{split}.txt").write_text("".join(f"{line}\n" for line in text))
    (folder / "captions.tsv").write_text("".join(f"image{n}.jpg\ta {NOUNS[n % 4]}\n" for n in range(IMAGES)))
    write_vectors(
        folder / "vectors", {word: np.eye(10)[n].tolist() for n, word in enumerate(w for w in WORDS if "#" not in w)}
    )
    for split in ("train", "valid"):
        assert retrieve(world, folder, split, folder / "masked" / split, "--mask-prob", 0.4) == 0
        assert retrieve(world, folder, split, folder / "whole" / split) == 0
    return folder


def finder_words(world, folder):
    return [
        "--captions",
        folder / "captions.tsv",
        "--word-vectors",
        folder / "vectors",
        "--image-features",
        world / "store",
        "-n",
        2,
    ]


def retrieve(world, folder, split, out, *more):
    out.parent.mkdir(exist_ok=True)
    masked = ["--mask-tokenizer", world / "encoder"] if "--mask-prob" in more else []
    words = ["retrieve", "--method", "scene", *finder_words(world, folder), "--text", folder / f"{split}.txt"]
    return main(list(map(str, [*words, *masked, *more, "--out", out])))


def test_the_mask_of_a_table_is_trained_with(world, associative):
    task = make_task(world, image_ids=str(associative / "masked"), mask_prob=0.4)
    for split in ("train", "valid"):
        table = ImageIds(associative / "masked" / split)
        for epoch in (1, 2):
            batch = whole(task, split, epoch)
            for row, length in enumerate(batch["net_input"]["src_lengths"].tolist()):
                assert batch["hidden_words"][row, : length - 1].tolist() == table.mask.hidden(row).tolist()
                assert not batch["hidden_words"][row, length - 1 :].any()
    # An image is of the noun that is left, or of none where it is hidden.
    shown = whole(task, "train")["net_input"]
    table = ImageIds(associative / "masked/train")
    seen = 0
    for row, line in enumerate(lines_of(task, "train")):
        words = line.split()
        noun = next(place for place, word in enumerate(words) if word in NOUNS)
        hidden = table.mask.hidden(row)
        alike = [int(rows) % 4 == NOUNS.index(words[noun]) for rows in table.ids[row] if rows >= 0]
        if not hidden[noun]:
            assert alike == [True, True]
            seen += 1
    assert seen > 10 and not shown["visual"]["padding_mask"].all()


def test_images_found_for_whole_lines_are_refused_where_words_are_told(world, associative):
    with pytest.raises(
        InputError, match=r"whole/train were found for whole lines, .* --mask-prob 0.15 --mask-tokenizer"
    ):
        make_task(world, image_ids=str(associative / "whole")).load_dataset("train")
    for flags in ({"grounding_objective": "jmrm"}, {"image_order": "blank"}):
        make_task(world, image_ids=str(associative / "whole"), **flags).load_dataset("train")
    # In validation words are asked whatever is learned.
    with pytest.raises(InputError, match="whole/valid were found for whole lines"):
        make_task(world, image_ids=str(associative / "whole"), grounding_objective="jmrm").load_dataset("valid")


def test_images_that_were_found_by_more_than_is_read_are_refused(world, associative, tmp_path):
    masked = {"image_ids": str(associative / "masked"), "mask_prob": 0.4}
    longest = max(len(line.split()) for line in lines_of_split(world, "train"))
    make_task(world, **masked, max_pieces=longest + 2).load_dataset("train")
    task = make_task(world, **masked, max_pieces=longest + 1)
    with pytest.raises(
        InputError, match=rf"--max-pieces {longest + 1} lets .* in \d+ of 40 lines .* --mask-max-pieces"
    ):
        task.load_dataset("train")
    make_task(world, **masked, max_pieces=longest + 1, image_order="blank").load_dataset("train")
    assert (
        retrieve(world, associative, "train", tmp_path / "ids/train", "--mask-prob", 0.4, "--mask-max-pieces", 5) == 0
    )
    make_task(world, image_ids=str(tmp_path / "ids"), mask_prob=0.4, max_pieces=5).load_dataset("train")


def test_a_mask_of_another_share_or_text_is_refused(world, associative, tmp_path):
    with pytest.raises(InputError, match=r"made with --mask-prob 0\.4, .* but --mask-prob is 0\.15: give the same"):
        make_task(world, image_ids=str(associative / "masked")).load_dataset("train")
    shutil.copytree(associative / "masked", tmp_path / "ids")
    pieces = np.load(tmp_path / "ids/train/pieces.npy")
    pieces[4] += 1
    np.save(tmp_path / "ids/train/pieces.npy", pieces)
    with pytest.raises(
        InputError, match=rf"line 5 of .*train has {pieces[4] - 1} pieces, but .* hides some of {pieces[4]}"
    ):
        make_task(world, image_ids=str(tmp_path / "ids"), mask_prob=0.4).load_dataset("train")


def test_a_mask_of_another_tokenizer_or_of_more_lines_is_refused(world, associative, tmp_path):
    shutil.copytree(associative / "masked", tmp_path / "ids")
    meta = json.loads((tmp_path / "ids/train/meta.json").read_text())
    (tmp_path / "ids/train/meta.json").write_text(json.dumps({**meta, "symbols_sha256": "0" * 64}))
    with pytest.raises(InputError, match=r"pieces of another tokenizer than those of .*: .* its symbols is 00000000…"):
        make_task(world, image_ids=str(tmp_path / "ids"), mask_prob=0.4).load_dataset("train")
    task = make_task(world, data=str(world / "text"), image_ids=str(associative / "masked"), mask_prob=0.4)
    with pytest.raises(InputError, match=r"has 20 sentences, but image ids in .* have 40 rows"):
        task.load_dataset("train")


def test_a_masked_table_and_one_without_do_not_go_together(world, associative, tmp_path):
    for name, source in (("train", "masked/train"), ("train1", "whole/train")):
        shutil.copytree(associative / source, tmp_path / "ids" / name)
    shutil.copytree(world / "bin", tmp_path / "bin")
    for ending in ("bin", "idx"):
        shutil.copy(world / f"bin/train.{ending}", tmp_path / f"bin/train1.{ending}")
    task = make_task(
        world, data=str(tmp_path / "bin"), image_ids=str(tmp_path / "ids"), mask_prob=0.4, image_order="blank"
    )
    with pytest.raises(InputError, match="ids/train1 should have been made with --mask-prob"):
        task.load_dataset("train", combine=True)
    shutil.rmtree(tmp_path / "ids/train")
    shutil.rmtree(tmp_path / "ids/train1")
    shutil.copytree(world / "ids/train", tmp_path / "ids/train")  # the lines' own images, then found ones
    shutil.copytree(associative / "masked/train", tmp_path / "ids/train1")
    with pytest.raises(InputError, match="ids/train should have been made with --mask-prob"):
        task.load_dataset("train", combine=True)
    shutil.rmtree(tmp_path / "ids/train")
    shutil.copytree(associative / "masked/train", tmp_path / "ids/train")
    task = make_task(world, data=str(tmp_path / "bin"), image_ids=str(tmp_path / "ids"), mask_prob=0.4)
    task.load_dataset("train", combine=True)
    batch, table = whole(task, "train"), ImageIds(tmp_path / "ids/train1")
    assert len(batch["id"]) == 80
    expected = table.mask.hidden(7)
    assert batch["hidden_words"][47, : len(expected)].tolist() == expected.tolist()


def finding(world, associative, **flags):
    words = " ".join(map(str, ["scene", *finder_words(world, associative)]))
    given = {"image_ids": None, "image_finder": words, "finder_tokenizer": str(world / "encoder"), "mask_prob": 0.4}
    return make_task(world, **{**given, **flags})


def test_images_are_found_for_each_line_as_it_is_masked_now(world, associative):
    task = finding(world, associative)
    batches = {epoch: whole(task, "train", epoch) for epoch in (1, 2)}
    assert not torch.equal(batches[1]["hidden_words"], batches[2]["hidden_words"])
    store, query = FeatureStore(world / "store"), task._query()
    dataset = task.dataset("train")
    for epoch, batch in batches.items():
        dataset.set_epoch(epoch)
        lines = [query(dataset[row]) for row in range(len(dataset))]
        ids = task._open_finder().find(lines).ids
        assert np.array_equal(batch["net_input"]["visual"]["features"].numpy(), store.gather(ids)[0])
    assert not torch.equal(batches[1]["net_input"]["visual"]["features"], batches[2]["net_input"]["visual"]["features"])
    assert torch.equal(whole(task, "valid", 1)["hidden_words"], whole(task, "valid", 2)["hidden_words"])


def test_the_best_of_what_a_finder_finds_are_taken(world, associative):
    both, best = (whole(finding(world, associative, images_per_sentence=count), "train") for count in (0, 1))
    features = [batch["net_input"]["visual"]["features"] for batch in (both, best)]
    assert [each.shape[1] for each in features] == [2, 1] and torch.equal(features[0][:, :1], features[1])
    with pytest.raises(InputError, match="--images-per-sentence is 3, but the finder finds 2"):
        whole(finding(world, associative, images_per_sentence=3), "train")


def test_what_a_finder_makes_of_the_lines_is_said_beforehand(world, associative, caplog):
    caplog.set_level("INFO")
    (associative / "nouns.tsv").write_text("".join(f"{NOUNS[n % 2]}\t\timage{n}.jpg\n" for n in range(IMAGES)))
    words = ["object", "--nouns", associative / "nouns.tsv", *finder_words(world, associative)[2:]]
    words += ["--images-per-noun", 1, "--tagger", "none", "--clusters", 1]
    task = finding(world, associative, image_finder=" ".join(map(str, words)))
    task.load_dataset("train")
    task.load_dataset("train")
    said = [record.getMessage() for record in caplog.records]
    query, dataset = task._query(), task.dataset("train")
    without = sum(not {*query(dataset[row]).split()} & {*NOUNS[:2]} for row in range(40))
    assert 10 < without < 40
    found = [line for line in said if line.startswith("images of train: 2 a sentence, found while batches are made,")]
    assert len(found) == 2 and "congruent, find|method:object|n:2|nouns:collection|" in found[0]
    assert f"; {without} of 40 lines" in found[0] and f"of a sample have none; features {world / 'store'}" in found[0]
    warned = [line.removeprefix("train, by a sample: ") for line in said if line.startswith("train, by a sample: ")]
    assert warned == [
        "no part-of-speech tagger is used: nouns are the words that are nouns of the collection, and their plurals in "
        "-s.",
        f"{without} of 40 sentences ({without / 0.4:.1f} %) have no noun with a vector and images; they have no image.",
    ]


def test_a_finder_that_reads_keys_is_refused(world, associative):
    task = finding(world, associative, image_finder=f"paired --image-features {world / 'store'}")
    with pytest.raises(InputError, match="should find images for text, but paired reads image keys"):
        task.load_dataset("train")


def test_shuffled_lines_get_what_is_found_for_others_as_they_are_masked_now(world, associative):
    task = finding(world, associative, image_order="shuffled", image_seed=3)
    order = derangement(np.arange(40), 3)
    assert sorted(order.tolist()) == list(range(40)) and (order != np.arange(40)).all()
    store, query = FeatureStore(world / "store"), task._query()
    for epoch in (1, 2):
        batch = whole(task, "train", epoch)
        dataset = task.dataset("train")
        ids = task._open_finder().find([query(dataset[int(other)]) for other in order]).ids
        assert np.array_equal(batch["net_input"]["visual"]["features"].numpy(), store.gather(ids)[0])
    blank = whole(finding(world, associative, image_order="blank"), "train")
    assert blank["net_input"]["visual"]["padding_mask"].all()


def test_what_a_mask_hides_makes_no_difference_to_what_is_found(world, associative):
    task = finding(world, associative)
    dataset = task.dataset("train") if task.datasets else (task.load_dataset("train"), task.dataset("train"))[1]
    samples = [dataset[row] for row in range(len(dataset))]
    before = dataset.collater(samples)["net_input"]["visual"]["features"]
    nouns = sorted(task.dictionary.index(word) for word in NOUNS)
    for sample in samples:
        for place in sample["hidden"].nonzero().ravel().tolist():
            sample["tokens"] = sample["tokens"].clone()
            sample["tokens"][place] = nouns[(place + 1) % 4]
    assert torch.equal(dataset.collater(samples)["net_input"]["visual"]["features"], before)


def test_a_word_that_is_hidden_in_one_piece_is_not_searched_by(world, associative, tmp_path):
    (tmp_path / "captions.tsv").write_text("image0.jpg\tdogs\nimage1.jpg\tdog\n")
    finder = f"keyword --captions {tmp_path / 'captions.tsv'} --image-features {world / 'store'} -n 1"
    task = finding(world, associative, image_finder=finder)
    task.load_dataset("train")
    tokens = task.dictionary.encode_line("a dog ##s near", add_if_not_exist=False).long()
    hidden = torch.zeros(4, len(tokens), dtype=torch.bool)
    hidden[0, 3] = hidden[1, 1] = hidden[2, 2] = hidden[3, 1:3] = True  # near, dog, ##s, both
    samples = [{"id": row, "tokens": tokens, "hidden": hidden[row]} for row in range(4)]
    absent = task.dataset("train").collater(samples)["net_input"]["visual"]["padding_mask"].flatten(1).all(dim=1)
    assert absent.tolist() == [False, True, True, True]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"mask_prob": 0.0}, "--mask-prob should be more than 0"),
        ({"region_mask_prob": 0.0}, "--region-mask-prob should be more than 0 and at most 1, but is 0.0"),
        ({"region_mask_prob": 1.5}, "--region-mask-prob should be more than 0 and at most 1, but is 1.5"),
        ({"region_mask_prob": 0.4}, "--region-mask-prob is of regions that are learned: give --grounding-objective"),
        ({"max_pieces": 2}, "--max-pieces should be at least 3"),
        ({"image_finder": "scene"}, "--image-finder finds the images, so --image-ids"),
        (
            {"image_ids": None, "image_finder": "scene"},
            "--image-finder also needs --image-features, and --finder-tokenizer",
        ),
        ({"image_tags": "words"}, "labels and scores of regions are needed for --image-tags"),
        ({"caption_data": "a:b"}, "--caption-data should be one folder, that of captions, but is a:b"),
        ({"caption_data": "a", "image_ids": "c:d"}, "--image-ids should be one folder"),
        ({"finder_tokenizer": "x"}, "--finder-tokenizer is for --image-finder"),
        ({"image_ids": None, "image_features": None, "caption_data": "x"}, "--caption-data also needs"),
        ({"image_ids": None, "image_features": None, "grounding_objective": "both"}, "tells regions of images: give"),
        ({"image_ids": None}, "--image-features and --image-ids belong together"),
        ({"data": None}, "needs a folder of binarised text"),
        ({"data": "nowhere"}, "nowhere/dict.txt should be the dictionary of the text"),
    ],
)
def test_flags_that_make_no_sense_are_refused(world, flags, message):
    with pytest.raises(InputError, match=message):
        make_task(world, **flags)


def test_text_that_is_not_there_or_does_not_fit_is_refused(world, tmp_path):
    with pytest.raises(InputError, match=r"should hold test\.idx, text binarised"):
        make_task(world, images=False).load_dataset("test")
    with pytest.raises(InputError, match="subset captions-valid is one of captions: give --caption-data"):
        make_task(world).load_dataset("captions-valid")
    shutil.copytree(world / "bin", tmp_path / "bin")
    (tmp_path / "bin/valid.idx").write_bytes(b"x")
    with pytest.raises(InputError, match=r"valid\.idx should be binarised text, but reading failed"):
        make_task(world, images=False, data=str(tmp_path / "bin")).load_dataset("valid")
    for ending, size in (("bin", 10), ("bin", 10_000), ("idx", 40)):
        content = (world / f"bin/valid.{ending}").read_bytes()
        shutil.copy(world / "bin/valid.idx", tmp_path / "bin/valid.idx")
        (tmp_path / f"bin/valid.{ending}").write_bytes((content + bytes(size))[:size])
        where = (
            r"valid\.idx should have 12 lines" if ending == "idx" else r"valid\.bin should have [\d,]+ bytes, as .*idx"
        )
        with pytest.raises(InputError, match=where):
            make_task(world, images=False, data=str(tmp_path / "bin")).load_dataset("valid")
    lines = (tmp_path / "bin/dict.txt").read_text().splitlines()
    (tmp_path / "bin/dict.txt").write_text("\n".join([*lines[::-1], ""]))
    with pytest.raises(InputError, match=r"should have the symbols of .* in their order, but hasn't"):
        make_task(world, caption_data=str(tmp_path / "bin"), data=str(world / "text"))
    (tmp_path / "bin/dict.txt").write_text("a 1\n")
    with pytest.raises(InputError, match="should have a symbol <mask>"):
        make_task(world, images=False, data=str(tmp_path / "bin"))
    (tmp_path / "bin/dict.txt").write_text("dog\n")
    with pytest.raises(InputError, match=r"dict\.txt should be a dictionary of fairseq, a symbol and a count in each"):
        make_task(world, images=False, data=str(tmp_path / "bin"))


@pytest.mark.parametrize("objective", ["jmrm", "both"])
def test_regions_are_not_learned_without_images_but_words_are_asked_without(world, objective):
    task = make_task(world, grounding_objective=objective, image_order="blank")
    with pytest.raises(InputError, match=f"objective {objective} learns regions of images, but --image-order blank"):
        task.load_dataset("train")
    assert whole(task, "valid")["word_side"].all()


@pytest.mark.parametrize("objective", ["jmlm", "jmrm"])
@pytest.mark.parametrize("found_for", ["masked", "whole"])
def test_captions_of_found_images_are_refused(world, associative, found_for, objective):
    task = make_task(
        world,
        data=str(world / "text"),
        caption_data=str(world / "bin"),
        image_ids=str(associative / found_for),
        mask_prob=0.4,
        grounding_objective=objective,
    )
    with pytest.raises(InputError, match="images of --caption-data should be the captions' own"):
        task.load_dataset("train")


def test_long_lines_are_cut_and_counted(world, caplog):
    task = make_task(world, images=False, max_pieces=5)
    batch = whole(task, "train")
    assert batch["net_input"]["src_tokens"].shape[1] == 4
    assert any("are cut at --max-pieces" in record.message for record in caplog.records)


def test_a_model_with_fewer_positions_than_lines_may_have_is_refused(world):
    task = make_task(world, max_pieces=40)
    with pytest.raises(InputError, match="--max-pieces is 40, but the encoder has positions for 24"):
        task.build_model(model_flags(world))


def test_a_store_of_another_collection_is_refused(world, tmp_path):
    store = write_store(tmp_path / "store", np.ones((8, 2, 6)), [f"other{n}.jpg" for n in range(8)])
    with pytest.raises(InputError, match="don't belong to feature store"):
        make_task(world, image_features=str(store)).load_dataset("train")


def test_the_tokenizer_of_a_finder_has_to_be_the_texts(world, associative, tmp_path):
    make_encoder(tmp_path / "other")
    words = (tmp_path / "other/tokenizer.json").read_text()
    (tmp_path / "other/tokenizer.json").write_text(json.dumps(_without(json.loads(words), "near")))
    with pytest.raises(InputError, match="should be the dictionary of tokenizer"):
        finding(world, associative, finder_tokenizer=str(tmp_path / "other")).load_dataset("train")


def _without(settings, word):
    vocabulary = settings["model"]["vocab"]
    vocabulary["nearby"] = vocabulary.pop(word)
    return settings


def test_text_of_another_dictionary_in_a_second_folder_is_refused(world, tmp_path):
    shutil.copytree(world / "text", tmp_path / "text")
    data = f"{world / 'text'}:{tmp_path / 'text'}"
    make_task(world, images=False, data=data)
    path = tmp_path / "text/dict.txt"
    path.write_text("".join(path.read_text().splitlines(True)[::-1]))
    with pytest.raises(InputError, match=rf"{path} should have the symbols of .*dict\.txt, in their order, but hasn't"):
        make_task(world, images=False, data=data)


@pytest.mark.parametrize(("every", "said"), [(1, True), (2, True), (9, False)])
def test_text_that_is_not_cut_as_its_dictionary_is_told(world, tmp_path, caplog, every, said):
    """Text binarised as it is has few words that are pieces."""
    shutil.copytree(world / "bin", tmp_path / "bin")
    forget_words(tmp_path / "bin/valid", every)
    task = make_task(world, data=str(tmp_path / "bin"))
    task.load_dataset("valid")
    lines = task._texts(str(tmp_path / "bin"), "valid", False)[0]
    unknown = sum(int((lines[row] == 3).sum()) for row in range(len(lines)))
    warned = re.findall(r"(\d+) of \d+ words .* in (.*) are <unk>: the dictionary doesn't", caplog.text)
    assert warned == ([(str(unknown), f"{tmp_path}/bin/valid")] if said else [])


def test_of_many_lines_some_are_looked_at(world):
    dictionary, lines = make_task(world).dictionary, [torch.tensor([5, 2])] * 3 + [torch.tensor([3, 3, 2])] * 4997
    (said,) = warn_of_unknown(lines, dictionary, "a text")
    assert said.startswith("3332 of 3333 words (") and ") in a sample of a text are <unk>" in said  # each third line
    assert list(warn_of_unknown([], dictionary, "a text")) == []
