"""Every reader of what comes from outside, each given hundreds of broken files: a whole result, or one short line.

A reader is a line of `READERS`: how to write a sound input, how to read it, and which of its files are broken. What is
broken about them is in `damage.py`.
"""

import gzip
import json
import os
import pickle
import shutil
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import timm
import torch
from conftest import write_image_ids, write_store
from damage import SPECIAL, damaged, replace_by, try_to_read
from fairseq.data import Dictionary
from fairseq.tasks.fairseq_task import StatefulContainer
from hypothesis import HealthCheck, Phase, given, settings
from PIL import Image
from safetensors.torch import save_file
from small_dual_encoder import make_dual_encoder
from small_grounded import make_task as grounded_task
from small_grounded import make_world as make_grounded_world
from small_grounded import model_flags as grounded_flags
from small_grounded import write_text as write_lines
from small_matcher import make_bert, make_token_matcher
from small_retriever import make_retriever, make_sentences, make_store, retrieve_dense
from small_trained import translator, write_world
from small_voken_lm import make_voken_world, model_flags, voken_task
from small_vokens import write_vokens
from small_word_vectors import write_fasttext, write_vectors

from tests.analysis.test_runs import write_run
from tests.features.imports import published
from tests.features.imports.test_annotations import write_entities
from tests.features.imports.test_region_hdf5 import write_groups, write_one_behind_the_other, write_tables
from tests.features.imports.test_region_lmdb import write_lmdb
from tests.features.test_timm_networks import save_random
from tests.features.tiny_onnx import write_detector
from tests.images.containers import encoded, picture, write_parquet, write_tar, write_zip
from tests.retrieval.test_export import checkpoint
from tests.storage.test_growing import make as make_parts
from visual_grounding.analysis.contrastive import read_scored_targets
from visual_grounding.analysis.hypotheses import check_sources, check_targets, read_references, read_translations
from visual_grounding.analysis.pointing_game import read_boxes
from visual_grounding.analysis.runs import doubts, read_runs, tabulate_runs
from visual_grounding.data.image_memory import ImageMemory
from visual_grounding.data.labelled_examples import ExampleBatches, read_examples
from visual_grounding.data.text_of_one_language import open_text
from visual_grounding.data.voken_memory import VokenMemory
from visual_grounding.data.word_memory import WordMemory, task_state_of
from visual_grounding.errors import InputError
from visual_grounding.features.array_sources import open_arrays
from visual_grounding.features.backbones import load_backbone
from visual_grounding.features.backbones.preprocessing import PicturePreprocessing
from visual_grounding.features.computation import Computation
from visual_grounding.features.detectors.onnx_detectors import load_onnx_detector
from visual_grounding.features.detectors.selection import Selection
from visual_grounding.features.image_network import DESCRIPTION, build_image_network, restore_image_network
from visual_grounding.features.importers import import_features
from visual_grounding.features.imports.annotations import genome_lines, read_sizes
from visual_grounding.features.imports.image_keys import KeyFormat
from visual_grounding.features.names import read_names
from visual_grounding.features.region_table import RegionTable
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import UnreadableImage, open_images, read_image
from visual_grounding.models.pretrained_start import read_pretrained
from visual_grounding.modules.sentence_encoders import load_pretrained_encoder
from visual_grounding.probes.predictions import example_texts
from visual_grounding.probes.trained import load_trained
from visual_grounding.retrieval.export import export_checkpoint
from visual_grounding.retrieval.export_dual_encoder import export_dual_encoder
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.index import Index, build_index
from visual_grounding.retrieval.noun_collection import iterate_nouns
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.storage.artefact import sha256_of_file
from visual_grounding.storage.checkpoints import (
    architecture,
    average_checkpoints,
    count_parameters,
    dictionaries,
    load_checkpoint,
    load_settings,
    trained_on,
    weights_for_images,
)
from visual_grounding.storage.lines import read_lines
from visual_grounding.storage.outside import read_bytes, reading
from visual_grounding.storage.shards import ShardedArtefact
from visual_grounding.storage.weights import load_strictly, read_weights
from visual_grounding.text.caption_tables import iterate_caption_tables
from visual_grounding.text.captions import read_captions
from visual_grounding.text.example_files import asked_of, digest_of_examples, read_asked, write_examples
from visual_grounding.text.labelled_tables import TableChoices, read_table
from visual_grounding.text.labelled_text import CLASSES, TAGS, Example, joined_words
from visual_grounding.text.line_index import LineIndex
from visual_grounding.text.metaphors import read_metaphors
from visual_grounding.text.stop_words import read_stop_words
from visual_grounding.text.tagged_columns import read_tagged
from visual_grounding.text.tokenizer_bridge import TokenizerBridge
from visual_grounding.text.word_positions import check_positions, read_positions
from visual_grounding.text.word_vectors import WordVectors
from visual_grounding.text.words import Vocabulary, digest_of_symbols
from visual_grounding.vokenization.language_model_folder import export_language_model
from visual_grounding.vokenization.vokens import Vokens

FUZZ = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


class Reader(NamedTuple):
    """How a sound input is written into a folder, how it is read, and which of its files are broken.

    `inputs` is how many broken ones each of these files has.
    """

    write: Callable[[Path], object]
    read: Callable[[Path], object]
    files: tuple[str, ...]
    inputs: int = 100


def write_text(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content, encoding="utf-8")


def read_store(folder: Path) -> None:
    store = FeatureStore(folder / "store")
    rows = np.arange(min(len(store), 30))
    store.rows_of(["image3.jpg"])
    store.gather(rows)
    store.absent(rows)
    store.gather_columns(rows)
    if "scores" in store.columns:
        store.highest_score()


def write_objects(folder: Path) -> None:
    columns = {"boxes": np.tile([0, 0.25, 0.5, 1], (7, 2, 1)), "labels": np.ones((7, 2)), "scores": np.ones((7, 2))}
    columns["attributes"] = np.zeros((7, 2))
    write_store(folder / "store", np.ones((7, 2, 3)), columns=columns)


def write_ids(folder: Path) -> None:
    make_store(folder / "store")
    ids = np.tile(np.arange(2, dtype=np.int32), (5, 1))
    write_image_ids(folder / "ids", ids, sha256_of_file(folder / "store/keys.txt"))


def read_ids(folder: Path) -> None:
    table = ImageIds(folder / "ids")
    sum(table.counts.values())
    table.doubt(["a"] * 5, "text")
    store = FeatureStore(folder / "store")
    table.check_against(store)
    table.check_lines(5, "text")
    store.gather(table.ids)
    np.asarray(table.scores).tolist()


def write_index(kind: str, **choices: int) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        features = np.random.default_rng(0).normal(size=(300, 1, 6))
        features[4] = 0
        write_store(folder / "store", features)
        retriever = make_retriever(folder / "retriever")
        build_index(retriever, FeatureStore(folder / "store"), folder / "index", kind=kind, **choices)

    return write


def unfinished(go_on: Callable[[Path], object], begin: Callable[[Path], object]) -> Callable[[Path], None]:
    """What a command leaves that was killed right before it publishes."""

    def write(folder: Path) -> None:
        begin(folder)
        killed = patch.object(ShardedArtefact, "publish", side_effect=InterruptedError)
        with killed, pytest.raises(InterruptedError):
            go_on(folder)

    return write


def go_on_with_index(folder: Path) -> None:
    build_index(Retriever.load(folder / "retriever"), FeatureStore(folder / "store"), folder / "out", shard_size=90)
    assert len(Index(folder / "out")) == 300


def go_on_with_ids(folder: Path) -> None:
    retriever, index = Retriever.load(folder / "retriever"), Index(folder / "index")
    retrieve_dense(retriever, index, make_sentences(), folder / "out", shard_size=30)
    assert len(ImageIds(folder / "out")) == len(make_sentences())


def read_index(folder: Path) -> None:
    index = Index(folder / "index")
    queries = torch.nn.functional.normalize(torch.ones(2, 8), dim=1)
    scores, ids = index.search(queries, 3)
    assert ids.shape == (2, 3) and int(ids.max()) < len(list(index.keys())) and scores.isfinite().all()
    index.search(queries, 1)


def read_retriever(folder: Path) -> None:
    retriever = Retriever.load(folder / "retriever")
    text = retriever.encode_text(["w1 w2"])  # (1, D)
    images = retriever.encode_images(torch.ones(1, 1, 6), torch.zeros(1, 1, dtype=torch.bool))  # (1, D)
    assert text.isfinite().all() and images.isfinite().all()


def write_dual_encoder(folder: Path) -> None:
    export_dual_encoder(str(make_dual_encoder(folder / "clip", "clip")), folder / "retriever")
    shutil.rmtree(folder / "clip")


def read_dual_encoder(folder: Path) -> None:
    text = Retriever.load(folder / "retriever").encode_text(["a dog runs"])  # (1, D)
    assert text.isfinite().all()


def read_text_encoder(folder: Path) -> None:
    load_pretrained_encoder(str(folder / "bert"))


def read_clip(folder: Path) -> None:
    prepare(load_backbone(f"clip:{folder / 'clip'}").preprocessing)


def write_timm(folder: Path) -> None:
    """A folder from the hub, as timm writes it."""
    save_random(TIMM, folder / "model.safetensors", num_classes=7)
    said = {"architecture": "test_efficientnet", "num_classes": 7, "num_features": 256, "global_pool": "avg"}
    said["pretrained_cfg"] = {**timm.get_pretrained_cfg(TIMM).to_dict(), "num_classes": 7}
    (folder / "config.json").write_text(json.dumps(said))


def read_timm(folder: Path) -> None:
    prepare(load_backbone(f"timm:{TIMM}", str(folder)).preprocessing)


def prepare(preprocessing: PicturePreprocessing) -> None:
    """A picture becomes numbers that a network can take."""
    pixels = preprocessing.pixels(picture(seed=1))
    assert pixels.shape == (*preprocessing.shape, 3) and pixels.dtype == np.uint8
    assert preprocessing.normalise(torch.from_numpy(pixels)[None]).isfinite().all()
    preprocessing.describe()


def write_binarised(folder: Path) -> None:
    write_lines(folder / "text", ["a b c", "", "b a"], words_of_binarised())


def read_binarised(folder: Path) -> None:
    lines = open_text(str(folder / "text"), words_of_binarised())
    for number in range(len(lines)):
        lines[number]


def words_of_binarised() -> Dictionary:
    words = Dictionary()
    for word in "abc":
        words.add_symbol(word)
    return words


def write_matcher(folder: Path) -> None:
    make_token_matcher(folder / "retriever")
    shutil.rmtree(folder / "retriever-bert")


def read_checkpoint(folder: Path) -> None:
    path = folder / "checkpoint.pt"
    state = load_checkpoint(path)
    architecture(state), dictionaries(state), trained_on(state, path)
    count_parameters(state["model"]), weights_for_images(state["model"])
    torch.save(average_checkpoints([path, path]), os.devnull)


def try_export(folder: Path) -> None:
    export_checkpoint(folder / "checkpoint.pt", folder / "out", folder)
    Retriever.load(folder / "out")


def read_started(folder: Path) -> None:
    found = read_pretrained(folder / "checkpoint.pt", ("visual_semantic_embedding",))
    found.check_words("text", ["a"], "here")


def write_weights(suffix: str) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        state = torch.nn.Linear(3, 2).state_dict()
        save_file(state, folder / "w.safetensors") if suffix == ".safetensors" else torch.save(state, folder / "w.pt")

    return write


def read_linear(suffix: str) -> Callable[[Path], object]:
    def read(folder: Path) -> None:
        linear = torch.nn.Linear(3, 2)
        load_strictly(linear, read_weights(folder / f"w{suffix}", finite=True), folder / f"w{suffix}", "a layer")
        linear(torch.ones(3))

    return read


def write_image_network(folder: Path) -> None:
    network = build_image_network("resnet18", "none", 32)
    state = {name: value.half() if value.is_floating_point() else value for name, value in network.state_dict().items()}
    save_file(state, folder / "w.safetensors")


def write_plain(suffix: str) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        array = np.arange(12, dtype=np.float32).reshape(4, 3) + 1
        if suffix == ".npy":
            np.save(folder / "f.npy", array)
        elif suffix == ".npz":
            np.savez(folder / "f.npz", a=array)
        else:
            torch.save({"a": torch.from_numpy(array)}, folder / "f.pt")
        (folder / "keys.txt").write_text("a\nb\nc\nd\n")
        (folder / "d").mkdir()
        for key in "ab":
            shutil.copy(folder / f"f{suffix}", folder / "d" / f"{key}{suffix}")

    return write


def read_plain(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> None:
        source = open_arrays(folder / name, None if name == "d" else folder / "keys.txt")
        import_features(source, folder / "out")
        FeatureStore(folder / "out").gather([0, 1])

    return read


def read_regions(name: str, keys: str | None = None, **choices: Any) -> Callable[[Path], object]:
    def read(folder: Path) -> None:
        path = folder / name
        choices.setdefault("regions", 3)
        store = published.import_all(path, folder / "out", folder / keys if keys else None, **choices)
        store.gather([0]), store.gather_columns([0])

    return read


TIMM = "test_efficientnet.r160_in1k"
BOTTOM_UP = (
    "img_id",
    "img_h",
    "img_w",
    "objects_id",
    "objects_conf",
    "attrs_id",
    "attrs_conf",
    "num_boxes",
    "boxes",
    "features",
)
BOXES = "image x1 y1 x2 y2 label score width height\na.jpg 1 2 3 4 dog 0.5 9 9\nb.jpg 1 2 3 4 cat 1 9 9\n"
BOXES = BOXES.replace(" ", "\t")
PHRASES = BOXES.replace("label\tscore", "phrase\tscore")
GENERATED = (
    "S-1\ta dog\nT-1\tein Hund\nH-1\t-0.5\tein Hund\nP-1\t-0.5 -0.25 -1.0\nD-1\t-0.5\tein Hund\n"
    "S-0\ta cat\nT-0\teine Katze\nH-0\t-0.7\teine Katze\nP-0\t-0.5 -0.25 -1.0\nD-0\t-0.7\teine Katze\n"
)
SNLI = "".join(
    json.dumps({"sentence1": "A dog runs.", "sentence2": "A cat.", "gold_label": label}) + "\n"
    for label in ("entailment", "neutral", "-", "contradiction")
)
JOCI = "CONTEXT,HYPOTHESIS,LABEL,SUBSET\nA dog,A cat,3,SNLI\nOne,Two,5,COPA\n"
PDTB = "arg1\targ2\tsense\nIt rained\twe left\tContingency.Cause.Reason\nA\tB\tExpansion\n"
GLUE = "sentence1\tsentence2\tlabel\nA dog\tA cat\t1\nOne\tTwo\t0\n"
SICK = "sentence_A,sentence_B,entailment_label,relatedness_score\nA dog,A cat,NEUTRAL,3.5\nOne,Two,NEUTRAL,4\n"
METAPHORS = 'verb,sentence,verb_idx,label\nfail,"They can fail , too .",2,1\neat,He eats .,1,0\n'
PARTS = "['DET', 'NOUN', 'VERB', 'NOUN', 'PUNCT']"
WORDS = f'sentence,label_seq,pos_seq\nA dog eats time .,"[0, 0, 1, 1, 0]","{PARTS}"\n'
CONLL = "-DOCSTART- O\n\nA O\nman B-PER\nin O\nOslo I-LOC\n\nEU I-ORG\n"
GENOME = json.dumps(
    [{"image_id": n, "objects": [{"x": 1, "y": 2, "w": 3, "h": 4, "names": ["dog"], "object_id": n}]} for n in (7, 12)]
)
SIZES = json.dumps([{"image_id": n, "width": 30, "height": 40} for n in (7, 12)])


def write_captions(ending: str) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        table = pa.table({"key": ["a.jpg", "b.jpg"], "caption": ["a dog", "a cat"]})
        if ending == ".parquet":
            pq.write_table(table, folder / "c.parquet")
            return
        with pa.OSFile(str(folder / "c.arrow"), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "c.arrow"}], "_fingerprint": "f"}))

    return write


def write_images(name: str) -> Callable[[Path], object]:
    members = {"a.png": encoded(picture(seed=1)), "b.jpg": encoded(picture(seed=2), "JPEG")}

    def write(folder: Path) -> None:
        path = folder / name
        if path.suffix == ".tar":
            write_tar(path, members)
        elif path.suffix == ".zip":
            write_zip(path, members, 8)
        elif path.suffix == ".parquet":
            write_parquet(path, list(members.values()), list(members))
        else:
            (folder / "d").mkdir()
            for key, content in members.items():
                (folder / "d" / key).write_bytes(content)
            for kind in ("gif", "bmp", "tiff", "webp", "ppm"):
                (folder / "d" / f"c.{kind}").write_bytes(encoded(picture(), kind.upper()))
            (folder / "list.txt").write_text("d/a.png\nd/b.jpg\n")

    return write


def read_images(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> None:
        images = open_images(folder / name)
        for row in range(len(images.keys)):
            try:
                assert isinstance(read_image(images, row), Image.Image)
            except UnreadableImage as reason:  # it would be listed; here it counts as refused
                raise InputError(f"image {images.keys[row]} can't be read: {reason}.") from reason

    return read


def read_captions_of_a_table(folder: Path) -> None:
    for path in (folder / "c.parquet", folder):
        if path.exists():
            list(iterate_caption_tables(path, "key", ["caption"]))
            return


def read_generated(folder: Path) -> None:
    path = folder / "hyp.txt"
    found = read_translations(path)
    if len(found.sentences) == 2:
        list(check_targets(path, found.targets, "ref", ["eine Katze", "ein Hund"]))
        list(check_sources(path, "src", ["a cat", "a dog"]))


def read_all_positions(folder: Path) -> None:
    check_positions(read_positions(folder / "p.txt"), ["a b c", "a b", "a"], "p", "text")


def write_runs(folder: Path) -> None:
    for seed, (ours, twin) in enumerate([(16.0, 15.0), (17.0, 14.5), (15.0, 15.5)], 1):
        write_run(folder / f"seed{seed}/scores", [ours], [twin])


def read_all_runs(folder: Path) -> None:
    runs = [folder / f"seed{seed}" for seed in (1, 2, 3)]
    evaluations = read_runs(runs)
    rows = tabulate_runs(runs, evaluations)
    list(doubts(rows, evaluations))


def write_small_vokens(folder: Path) -> None:
    make_bert(folder / "bert")
    write_vokens(folder / "vokens", ["a b c", "", "d e"], folder / "bert")
    shutil.rmtree(folder / "bert")


def read_vokens(folder: Path) -> None:
    vokens = Vokens(folder / "vokens")
    vokens.check_range()
    list(vokens.keys()), list(vokens.token_lines()), vokens.of_line(0)
    vokens.bridge().numbers_of(["a b"])


def write_asked(folder: Path) -> None:
    bridge = TokenizerBridge(str(make_bert(folder / "bert")))
    examples = [Example(("a b", "c d"), (label,)) for label in ("yes", "no")]
    asked = asked_of(CLASSES, examples, bridge)
    write_examples(folder / "e", {"train": examples}, asked, bridge, "made", dict, lambda _: None)
    shutil.rmtree(folder / "bert")


def write_tagged(folder: Path) -> None:
    """Examples of every kind of file: two sentences, or tagged words."""
    write_asked(folder)
    bridge = TokenizerBridge(str(make_bert(folder / "bert")))
    text, spans = joined_words(["a", "b"])
    examples = [Example((text,), tags, spans) for tags in (("O", "B-x"), ("B-y", "I-y"))]
    write_examples(
        folder / "w", {"train": examples}, asked_of(TAGS, examples, bridge), bridge, "made", dict, lambda _: None
    )
    shutil.rmtree(folder / "bert")


def read_both(folder: Path) -> None:
    for name in ("e", "w"):
        place = folder / name
        asked, _ = read_asked(place)
        dictionary = Dictionary()
        for symbol in "abcd":
            dictionary.add_symbol(symbol)
        read = read_examples(place, "train", asked, dictionary)
        batches = ExampleBatches(read, asked, dictionary, 16, shuffle=False)
        batches.collater([batches[index] for index in range(len(batches))])
        example_texts(place, "train", asked.sentences, len(batches))


def read_rows(name: str, kind: str, **choices: Any) -> Callable[[Path], object]:
    return lambda folder: digest_of_examples(read_table(folder / name, kind, TableChoices(**choices))[0].examples)


def write_language_model(folder: Path) -> None:
    world = make_voken_world(folder / "world")
    task, args = voken_task(world), model_flags("voken_bert")
    model = task.build_model(args)
    torch.save({"cfg": {"model": args}, "model": model.state_dict(), "task_state": {}}, folder / "m.pt")
    (world / "tokenizer").rename(folder / "tokenizer")
    shutil.rmtree(world)


def try_export_language_model(folder: Path) -> None:
    export_language_model(folder / "m.pt", str(folder / "tokenizer"), folder / "out")


def read_detector(folder: Path) -> None:
    names = ["a", "b", "c", "d", "e"]
    computation = Computation(torch.device("cpu"))
    load_onnx_detector(folder / "d.onnx", names, None, ("map_fine",), None, Selection(), None, computation)


def read_numbers(folder: Path) -> None:
    for path in folder.iterdir():
        "\n".join(read_names(path)).encode()


def read_network(folder: Path) -> None:
    restore_image_network(read_weights(folder / "w.safetensors"))


def write_description(folder: Path) -> None:
    """What an image network says of itself, as a file of its own, which `read_described` puts back."""
    write_image_network(folder)
    said = read_weights(folder / "w.safetensors")[DESCRIPTION]
    (folder / "description.json").write_bytes(bytes(said.tolist()))


def read_described(folder: Path) -> None:
    state, path = read_weights(folder / "w.safetensors"), folder / "description.json"
    with reading(path, "a description"):
        state[DESCRIPTION] = torch.tensor(list(read_bytes(path)), dtype=torch.uint8)
    network = restore_image_network(state, path)
    prepare(network.preprocessing)
    network.map_shape()


def read_sizes_of(folder: Path) -> None:
    read_sizes(folder / "sizes.json", ["7.jpg", "12.jpg"], KeyFormat("{id}.jpg"))


def read_table_of_boxes(folder: Path) -> None:
    RegionTable(folder / "boxes.tsv", ["a.jpg", "b.jpg"]).block(0, 2, 2)


def write_key_pickle(folder: Path) -> None:
    np.save(folder / "f.npy", np.ones((2, 3), np.float32))
    (folder / "keys.pkl").write_bytes(pickle.dumps({"a": 0, "b": 1}))


def read_key_pickle(folder: Path) -> None:
    import_features(open_arrays(folder / "f.npy", folder / "keys.pkl"), folder / "out")


def write_gz(folder: Path) -> None:
    with gzip.open(folder / "t.gz", "wb") as file:
        file.write(b"a dog\nb\n")


def read_tokenizer(folder: Path) -> None:
    TokenizerBridge(str(folder / "bert")).spans_of(["a b", "xy"])


def write_trained(folder: Path) -> None:
    """Of a model that says itself which weights don't fit, and of one whose loading is fairseq's alone."""
    write_world(folder)
    translator(folder, folder / "seeing.pt", arch="visual_aware_transformer")
    translator(folder, folder / "plain.pt", arch="transformer", images=False)


def read_trained(folder: Path) -> None:
    places = {"data": folder / "bin", "image_features": folder / "store", "image_ids": folder / "ids"}
    for name in ("seeing.pt", "plain.pt"):
        trained = load_trained(
            folder / name, "grounded_translation", torch.device("cpu"), {name: str(at) for name, at in places.items()}
        )
        assert not trained.model.training


def write_task_state(folder: Path) -> None:
    """All that any task remembers; under another name than task_state, so that the memories are the first to see it."""
    make_store(folder / "store")
    vokens = {"keys_sha256": "0" * 64, "count": 5, "tokenizer_sha256": "1" * 64, "made": "vokenize|by:hand"}
    images = {"image_features": FeatureStore(folder / "store").signature, "images_per_sentence": 2, "image_tags": None}
    labels = {"voken_labels": "--voken-labels vokens", "words": ["a"]}
    state = {"dictionaries": {"source": digest_of_symbols("abc")}, **images, "vokens": vokens, **labels}
    torch.save({"state": state}, folder / "state.pt")
    torch.save({"task_state": state}, folder / "checkpoint.pt")


def read_task_state(folder: Path) -> None:
    known = task_state_of(str(folder / "checkpoint.pt"))
    state = load_settings(folder / "state.pt").get("state")
    seeing = FeatureStore(folder / "store")
    memories: list[WordMemory] = [VokenMemory(StatefulContainer()), VokenMemory(StatefulContainer())]
    memories += [ImageMemory(StatefulContainer(), store, False, lambda _: None) for store in (seeing, None)]
    memories[0].merge_state_dict(known)
    for memory in memories:
        memory.remember_words("source", "dict.txt", "abc")
        memory.merge_state_dict(state)
        torch.save(memory.state_dict, os.devnull)


def write_encoders(folder: Path) -> None:
    """What a grounded language model keeps of its encoders, and a voken model of its BERT, as files of their own."""
    args = grounded_flags(make_grounded_world(folder / "grounded"))
    grounded_task(folder / "grounded").build_model(args)
    (folder / "grounded.json").write_text(args.grounded_config)
    shutil.rmtree(folder / "grounded/encoder")
    make_voken_world(folder / "vokens")
    bert = model_flags()
    voken_task(folder / "vokens").build_model(bert)
    (folder / "bert.json").write_text(bert.bert_config)


def kept_text(path: Path) -> str:
    with reading(path, "settings"):
        return read_bytes(path).decode("utf-8")


def load_grounded(folder: Path) -> None:
    args = Namespace(arch="grounded_albert", _name="grounded_albert", visual_feature_size=6, image_ranks=5)
    args.grounded_config = kept_text(folder / "grounded.json")
    grounded_task(folder / "grounded").build_model(args)


def go_on_with_bert(folder: Path) -> None:
    args = Namespace(arch="voken_bert", bert_config=kept_text(folder / "bert.json"))
    torch.save({"args": args, "model": {"any": torch.ones(1)}}, folder / "before.pt")
    task = voken_task(folder / "vokens", finetune_from_model=str(folder / "before.pt"))
    task.build_model(Namespace(arch="voken_bert", _name="voken_bert"))


def read_encoders(folder: Path) -> None:
    load_grounded(folder)
    go_on_with_bert(folder)


READERS = {
    "feature store": Reader(
        lambda f: make_store(f / "store"), read_store, ("store/meta.json", "store/features.npy", "store/keys.txt")
    ),
    "regions": Reader(
        write_objects,
        read_store,
        tuple(
            f"store/{name}"
            for name in ("meta.json", "boxes.npy", "labels.npy", "attributes.npy", "scores.npy", "label_names.txt")
        ),
    ),
    "image ids": Reader(write_ids, read_ids, ("ids/meta.json", "ids/ids.npy", "ids/scores.npy")),
    "exact index": Reader(
        write_index("exact"), read_index, ("index/meta.json", "index/embeddings.npy", "index/keys.txt")
    ),
    "flat index": Reader(write_index("flat"), read_index, ("index/meta.json", "index/index.faiss", "index/absent.npy")),
    "ivf index": Reader(write_index("ivf", lists=4), read_index, ("index/meta.json", "index/index.faiss"), 120),
    "pq index": Reader(write_index("pq", lists=2, code_bytes=4), read_index, ("index/index.faiss",), 120),
    "unfinished index": Reader(
        unfinished(go_on_with_index, write_index("exact")),
        go_on_with_index,
        tuple(f"out.partial/{name}" for name in ("progress/plan.json", "progress/000001.json", "files/embeddings.npy")),
        60,
    ),
    "unfinished image ids": Reader(
        unfinished(go_on_with_ids, write_index("exact")),
        go_on_with_ids,
        tuple(f"out.partial/{name}" for name in ("progress/plan.json", "progress/000001.json", "files/ids.npy")),
        60,
    ),
    "unfinished output of parts": Reader(
        unfinished(lambda f: make_parts(f / "out"), lambda f: None),
        lambda f: make_parts(f / "out"),
        tuple(
            f"out.partial/{name}"
            for name in ("progress/000000.json", "shards/000000.values.npy", "shards/000002.lengths.npy")
        ),
    ),
    "retriever": Reader(
        lambda f: make_retriever(f / "retriever"),
        read_retriever,
        ("retriever/config.json", "retriever/model.safetensors", "retriever/dict.txt"),
        150,
    ),
    "token matcher": Reader(
        write_matcher,
        read_retriever,
        ("retriever/config.json", "retriever/model.safetensors", "retriever/text_encoder/config.json"),
        60,
    ),
    "text encoder of others": Reader(lambda f: make_bert(f / "bert"), read_text_encoder, ("bert/config.json",), 60),
    "CLIP of others": Reader(
        lambda f: make_dual_encoder(f / "clip", "clip"),
        read_clip,
        ("clip/config.json", "clip/preprocessor_config.json"),
        150,
    ),
    "SigLIP of others": Reader(
        lambda f: make_dual_encoder(f / "clip", "siglip"), read_clip, ("clip/preprocessor_config.json",), 100
    ),
    "timm folder": Reader(write_timm, read_timm, ("config.json",), 200),
    "binarised text": Reader(write_binarised, read_binarised, ("text.idx", "text.bin"), 100),
    "dual encoder": Reader(
        write_dual_encoder,
        read_dual_encoder,
        ("retriever/config.json", "retriever/text_encoder/config.json"),
        60,
    ),
    "checkpoint": Reader(lambda f: checkpoint(f, args=Namespace(arch="x")), read_checkpoint, ("checkpoint.pt",), 300),
    "checkpoint exported": Reader(checkpoint, try_export, ("checkpoint.pt", "dict.txt"), 150),
    "checkpoint started from": Reader(
        lambda f: checkpoint(f, task_state={"dictionaries": {"text": digest_of_symbols(["a"])}}),
        read_started,
        ("checkpoint.pt",),
        150,
    ),
    "weights of safetensors": Reader(
        write_weights(".safetensors"), read_linear(".safetensors"), ("w.safetensors",), 120
    ),
    "weights of torch": Reader(write_weights(".pt"), read_linear(".pt"), ("w.pt",), 120),
    "image network": Reader(write_image_network, read_network, ("w.safetensors",), 25),
    "description of an image network": Reader(write_description, read_described, ("description.json",), 150),
    "detector": Reader(lambda f: write_detector(f / "d.onnx"), read_detector, ("d.onnx",), 100),
    "npy": Reader(write_plain(".npy"), read_plain("f.npy"), ("f.npy", "keys.txt")),
    "tensor": Reader(write_plain(".pt"), read_plain("f.pt"), ("f.pt",)),
    "folder of npy": Reader(write_plain(".npy"), read_plain("d"), ("d/a.npy",)),
    "folder of npz": Reader(write_plain(".npz"), read_plain("d"), ("d/a.npz",)),
    "folder of tensors": Reader(write_plain(".pt"), read_plain("d"), ("d/b.pt",)),
    "folder of pickles": Reader(
        lambda f: published.write_vtlm(f / "d"), read_regions("d", regions=4), ("d/7.jpg.pkl",), 120
    ),
    "pickled keys": Reader(write_key_pickle, read_key_pickle, ("keys.pkl",)),
    "region TSV": Reader(lambda f: published.write_tsv(f / "f.tsv", BOTTOM_UP), read_regions("f.tsv"), ("f.tsv",), 150),
    "HDF5 tables": Reader(lambda f: write_tables(f / "f.h5"), read_regions("f.h5"), ("f.h5",), 150),
    "HDF5 groups": Reader(lambda f: write_groups(f / "f.h5"), read_regions("f.h5"), ("f.h5",), 100),
    "HDF5 one behind the other": Reader(
        lambda f: (write_one_behind_the_other(f / "f.h5"), (f / "keys.txt").write_text("7\n12\n3\n")),
        read_regions("f.h5", "keys.txt"),
        ("f.h5",),
        100,
    ),
    "LMDB": Reader(lambda f: write_lmdb(f / "f.lmdb"), read_regions("f.lmdb"), ("f.lmdb/data.mdb",), 150),
    "table of boxes": Reader(write_text("boxes.tsv", BOXES), read_table_of_boxes, ("boxes.tsv",), 150),
    "phrases and boxes": Reader(
        write_text("boxes.tsv", PHRASES), lambda f: read_boxes(f / "boxes.tsv"), ("boxes.tsv",)
    ),
    "objects of Visual Genome": Reader(
        write_text("objects.json", GENOME),
        lambda f: list(genome_lines(f / "objects.json", KeyFormat("{id}.jpg"))),
        ("objects.json",),
        150,
    ),
    "sizes of Visual Genome": Reader(write_text("sizes.json", SIZES), read_sizes_of, ("sizes.json",)),
    "annotations of entities": Reader(
        write_entities, lambda f: RegionTable(f, ["9.jpg"]), ("Annotations/9.xml", "Sentences/9.txt")
    ),
    "names in JSON": Reader(write_text("n.json", '{"0": "dog", "1": "cat"}'), read_numbers, ("n.json",)),
    "names": Reader(write_text("n.txt", "dog\ncat\n"), read_numbers, ("n.txt",), 50),
    "captions": Reader(
        write_text("c.tsv", "a.jpg\ta dog\nb.jpg\ta cat\n"), lambda f: read_captions(f / "c.tsv"), ("c.tsv",)
    ),
    "captions in parquet": Reader(write_captions(".parquet"), read_captions_of_a_table, ("c.parquet",), 150),
    "captions of datasets": Reader(write_captions(".arrow"), read_captions_of_a_table, ("c.arrow", "state.json")),
    "nouns": Reader(
        write_text("n.tsv", "dog\tan animal\ta.jpg\ncat\t\tb.jpg\n"),
        lambda f: list(iterate_nouns(f / "n.tsv")),
        ("n.tsv",),
    ),
    "word vectors": Reader(
        lambda f: write_vectors(f / "v.vec", {"a": [1.0, 2.0], "dog": [0.5, -1.0]}),
        lambda f: WordVectors(f / "v.vec").of_text("a dog", frozenset()),
        ("v.vec",),
        150,
    ),
    "binary word vectors": Reader(
        lambda f: write_vectors(f / "v.bin", {"a": [1.0, 2.0], "dog": [0.5, -1.0]}, binary=True),
        lambda f: WordVectors(f / "v.bin").of_text("a dog", frozenset()),
        ("v.bin",),
        150,
    ),
    "fastText": Reader(
        lambda f: write_fasttext(f / "v.bin", [["a", "dog"], ["the", "cat"]]),
        lambda f: WordVectors(f / "v.bin").of_text("a dog", frozenset()),
        ("v.bin",),
        150,
    ),
    "stop words": Reader(write_text("s.txt", "a\nthe\n"), lambda f: read_stop_words(f / "s.txt"), ("s.txt",), 50),
    "dictionary": Reader(
        write_text("dict.txt", "a 3\nthe 2\n"), lambda f: Vocabulary.load(f / "dict.txt"), ("dict.txt",), 50
    ),
    "tokenizer": Reader(
        lambda f: make_bert(f / "bert"), read_tokenizer, ("bert/tokenizer.json", "bert/tokenizer_config.json"), 100
    ),
    "lines": Reader(
        write_text("t.txt", "a dog\nb\n"), lambda f: (read_lines(f / "t.txt"), LineIndex(f / "t.txt")), ("t.txt",), 50
    ),
    "compressed lines": Reader(write_gz, lambda f: read_lines(f / "t.gz"), ("t.gz",)),
    "SNLI": Reader(write_text("t.jsonl", SNLI), read_rows("t.jsonl", "snli"), ("t.jsonl",), 150),
    "SICK": Reader(
        write_text("t.csv", SICK),
        read_rows("t.csv", "sick", values=True, columns=("sentence_A", "sentence_B", "relatedness_score")),
        ("t.csv",),
    ),
    "GLUE": Reader(write_text("t.tsv", GLUE), read_rows("t.tsv", "glue"), ("t.tsv",)),
    "JOCI": Reader(write_text("t.csv", JOCI), read_rows("t.csv", "joci", only={"SUBSET": "SNLI"}), ("t.csv",)),
    "PDTB": Reader(write_text("t.tsv", PDTB), read_rows("t.tsv", "pdtb", level=1), ("t.tsv",)),
    "CoNLL": Reader(write_text("t.conll", CONLL), lambda f: read_tagged(f / "t.conll"), ("t.conll",)),
    "metaphors, verbs": Reader(write_text("t.csv", METAPHORS), lambda f: read_metaphors(f / "t.csv"), ("t.csv",)),
    "metaphors, words": Reader(write_text("t.csv", WORDS), lambda f: read_metaphors(f / "t.csv"), ("t.csv",)),
    "examples": Reader(
        write_tagged,
        read_both,
        (
            "e/meta.json",
            "e/train.first",
            "e/train.first.pieces",
            "e/train.second.pieces",
            "e/train.answers",
            "w/train.words",
            "w/train.answers",
        ),
        60,
    ),
    "language model exported": Reader(
        write_language_model, try_export_language_model, ("m.pt", "tokenizer/tokenizer.json"), 60
    ),
    "positions of words": Reader(write_text("p.txt", "0 2\n\n0\n"), read_all_positions, ("p.txt",)),
    "translations": Reader(write_text("hyp.txt", GENERATED), read_generated, ("hyp.txt",), 150),
    "references": Reader(
        write_text("ref.txt", "ein Hund\neine Katze\n"), lambda f: read_references(f / "ref.txt"), ("ref.txt",), 50
    ),
    "contrastive scores": Reader(
        write_text("s.txt", GENERATED), lambda f: read_scored_targets(f / "s.txt"), ("s.txt",), 150
    ),
    "runs": Reader(write_runs, read_all_runs, ("seed1/scores/scores.json", "seed2/scores/resampled.npz"), 120),
    "vokens": Reader(
        write_small_vokens,
        read_vokens,
        (
            "vokens/meta.json",
            "vokens/vokens.npy",
            "vokens/offsets.npy",
            "vokens/tokens.txt",
            "vokens/tokenizer/tokenizer.json",
        ),
        60,
    ),
    "tar of images": Reader(write_images("i.tar"), read_images("i.tar"), ("i.tar",), 150),
    "zip of images": Reader(write_images("i.zip"), read_images("i.zip"), ("i.zip",), 150),
    "parquet of images": Reader(write_images("i.parquet"), read_images("i.parquet"), ("i.parquet",), 150),
    "list of images": Reader(write_images("d"), read_images("list.txt"), ("list.txt",), 150),
    "folder of images": Reader(
        write_images("d"),
        read_images("d"),
        ("d/a.png", "d/b.jpg", "d/c.gif", "d/c.bmp", "d/c.tiff", "d/c.webp", "d/c.ppm"),
        60,
    ),
    "checkpoint probed": Reader(write_trained, read_trained, ("seeing.pt", "plain.pt"), 200),
    "task state": Reader(write_task_state, read_task_state, ("state.pt", "checkpoint.pt"), 200),
    "encoders of a checkpoint": Reader(write_encoders, read_encoders, ("grounded.json", "bert.json"), 150),
}
# Their text may come out of a pipe, which is waited for.
PIPED = {
    "npy", "table of boxes", "phrases and boxes", "names in JSON", "names", "captions", "nouns", "stop words", "lines",
    "compressed lines", "SNLI", "SICK", "GLUE", "JOCI", "PDTB", "CoNLL", "positions of words", "translations",
    "references", "contrastive scores", "list of images",
}  # fmt: skip
CASES = [(name, file) for name, reader in READERS.items() for file in reader.files]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder with a reader's sound input."""
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("sound")
            READERS[name].write(made[name])
        return made[name]

    return of


def copied(source: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    return folder


@pytest.mark.parametrize("name", READERS)
def test_sound_input_is_read(sound: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    READERS[name].read(copied(sound(name), tmp_path / "scratch"))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "file"), CASES)
def test_broken_file_is_read_or_refused_in_a_line(
    sound: Callable[[str], Path], tmp_path: Path, name: str, file: str, record_property: Callable[[str, object], None]
) -> None:
    reader, scratch = READERS[name], tmp_path / "scratch"
    whole, path = (sound(name) / file).read_bytes(), scratch / file
    tried = refused = 0

    @settings(FUZZ, max_examples=reader.inputs)
    @given(content=damaged(whole, path.suffix, tmp_path / "executed"))
    def check(content: bytes) -> None:
        nonlocal tried, refused
        copied(sound(name), scratch)
        path.write_bytes(content)
        refused += not try_to_read(lambda: reader.read(scratch), scratch)
        tried += 1
        assert os.listdir(tmp_path) == ["scratch"], "it wrote outside its folder, or ran what the file asks for"

    check()
    for special in SPECIAL:
        if special == "pipe" and name in PIPED and not file.endswith(".npy"):
            continue
        copied(sound(name), scratch)
        replace_by(path, special)
        try:
            refused += not try_to_read(lambda: reader.read(scratch), scratch)
        except BaseException as error:
            error.add_note(f"{file} is {special}")
            raise
        tried += 1
    assert refused, "none of the broken files was refused"
    record_property("fuzzed", (name, tried, refused))
