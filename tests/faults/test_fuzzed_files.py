"""Files that are broken, absurd or malicious: every reader says what is wrong, and nothing in them is ever run."""

import io
import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import write_image_ids, write_store
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from small_retriever import make_retriever, make_sentences, make_store, retrieve_dense

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.features.array_sources import open_arrays
from visual_grounding.features.importers import import_features
from visual_grounding.features.store import FeatureStore
from visual_grounding.features.store_writer import StoreWriter
from visual_grounding.modules.joint_embedding import JointEmbedding, JointEmbeddingConfig
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.index import Index, build_index
from visual_grounding.retrieval.joint_embedding import save_joint_embedding
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.storage.artefact import sha256_of_file
from visual_grounding.storage.lines import read_lines
from visual_grounding.text.captions import read_captions
from visual_grounding.text.pretrained_tokenizer import PretrainedTokenizer
from visual_grounding.text.words import Vocabulary

FUZZ = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
COUNTS = st.sampled_from([-1, 0, 1, 3, 20, 2**31, 2**63, 10**18, 10**40])
JSON = st.recursive(
    st.none() | st.booleans() | COUNTS | st.floats() | st.text(max_size=8) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
DEEP = st.sampled_from([b"[" * depth + b"]" * depth for depth in (100, 990, 5000, 100_000)])


@st.composite
def broken_json(draw: Any, whole: bytes) -> bytes:
    """A JSON file with some fields replaced or removed, cut off, or something else altogether."""
    kind = draw(st.sampled_from(["fields", "fields", "fields", "cut", "other", "bytes", "deep"]))
    if kind == "cut":
        return whole[: draw(st.integers(0, len(whole) - 1))]
    if kind == "other":
        return json.dumps(draw(JSON)).encode()
    if kind == "bytes":
        return draw(st.binary(max_size=40))
    if kind == "deep":
        return draw(DEEP)
    content = json.loads(whole)
    inner = draw(st.sampled_from([content, *(value for value in content.values() if isinstance(value, dict))]))
    for name in draw(st.lists(st.sampled_from(sorted(inner)), min_size=1, max_size=2, unique=True)) if inner else []:
        if draw(st.booleans()):
            inner[name] = draw(JSON)
        else:
            del inner[name]
    return json.dumps(content).encode()


@st.composite
def broken_npy(draw: Any, whole: bytes) -> bytes:
    """An array file that is cut off, flipped somewhere, or says other things in its header."""
    kind = draw(st.sampled_from(["header", "header", "cut", "flip", "bytes"]))
    if kind == "cut":
        return whole[: draw(st.integers(0, len(whole) - 1))]
    if kind == "bytes":
        return whole[:8] + draw(st.binary(max_size=60))
    if kind == "flip":
        content = bytearray(whole)
        for place in draw(st.lists(st.integers(0, min(len(whole), 128) - 1), min_size=1, max_size=4)):
            content[place] = draw(st.integers(0, 255))
        return bytes(content)
    descr = draw(st.sampled_from(["<f2", "<f4", "<i4", "|O", "|V6", ">f2", "<M8[s]", "<U5", "|b1", "nonsense", 3]))
    shape = draw(st.lists(COUNTS, max_size=4).map(tuple) | st.just("(") | st.floats())
    header = repr({"descr": descr, "fortran_order": draw(st.sampled_from([False, True, 3])), "shape": shape})
    header = draw(st.sampled_from([header, header[:-3], header + " " * 30 + "\n", "(" * 300 + ")" * 300]))
    size = draw(st.sampled_from([len(header), 2**16 - 1]))
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", size) + header.encode() + whole[128:]


@st.composite
def broken_text(draw: Any, whole: bytes) -> bytes:
    """Lines that are missing, too many, empty, or no text."""
    lines = whole.split(b"\n")
    place = draw(st.integers(0, len(lines) - 1))
    return draw(
        st.sampled_from(
            [b"\n".join(lines[:place]), b"\n".join(lines + lines), whole + b"\xff\xfe", b"", b"\n" * len(lines)]
        )
        | st.binary(max_size=50)
    )


@st.composite
def broken_safetensors(draw: Any, whole: bytes) -> bytes:
    """Weights that are cut off, flipped, not finite, or whose header is something else."""
    length = struct.unpack("<Q", whole[:8])[0]
    kind = draw(st.sampled_from(["cut", "flip", "header", "length"]))
    if kind == "cut":
        return whole[: draw(st.integers(0, len(whole) - 1))]
    if kind == "length":
        return struct.pack("<Q", draw(st.sampled_from([0, 1, 2**20, 2**62, 2**64 - 1]))) + whole[8:]
    if kind == "flip":
        content = bytearray(whole)
        for place in draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=30)):
            content[place] = draw(st.integers(0, 255))
        return bytes(content)
    header = draw(broken_json(whole[8 : 8 + length]))
    return struct.pack("<Q", len(header)) + header + whole[8 + length :]


BREAK: dict[str, Callable[[bytes], st.SearchStrategy[bytes]]] = {
    ".json": broken_json,
    ".npy": broken_npy,
    ".txt": broken_text,
    ".safetensors": broken_safetensors,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One sound artefact of each kind."""
    folder = tmp_path_factory.mktemp("sound")
    make_pretrained_retriever(folder)
    retriever = make_retriever(folder / "retriever")
    store = FeatureStore(make_store(folder / "store"))
    build_index(retriever, store, folder / "index")
    write_objects(folder / "objects")
    write_image_ids(folder / "ids", np.zeros((5, 2), np.int32), sha256_of_file(folder / "store/keys.txt"))
    return folder


def write_objects(folder: Path) -> None:
    """A store with boxes, labels and scores of 2 regions an image."""
    columns = {"boxes": np.tile([0, 0.25, 0.5, 1], (7, 2, 1)), "labels": np.ones((7, 2)), "scores": np.ones((7, 2))}
    write_store(folder, np.ones((7, 2, 3)), columns=columns)


def make_pretrained_retriever(folder: Path) -> None:
    """A retriever with a tiny BERT."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    (folder / "words").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w1", "w2"]))
    BertTokenizerFast(str(folder / "words")).save_pretrained(folder / "bert")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    bert = BertConfig(vocab_size=7, max_position_embeddings=16, **sizes)
    bert.save_pretrained(folder / "bert")
    config = JointEmbeddingConfig("pretrained", "linear", image_feature_size=6, joint_size=8)
    tokenizer = PretrainedTokenizer(str(folder / "bert"))
    save_joint_embedding(folder / "pretrained", JointEmbedding(config, BertModel(bert)), tokenizer, "bert")


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "scratch"


def read_store(folder: Path, _: Path) -> int:
    """All that is read of a store; how many images it has, as the other readers say how much they read."""
    store = FeatureStore(folder)
    list(store.keys())
    store.rows_of(["image3.jpg"])
    store.key(0)
    store.gather(np.arange(min(len(store), 5)))
    store.gather_columns(np.arange(min(len(store), 5)))
    return len(store)


def read_ids(folder: Path, world: Path) -> int:
    table = ImageIds(folder)
    sum(table.counts.values())
    table.check_lines(5, "text")
    table.check_against(FeatureStore(world / "store"))
    return len(table.ids)


def read_index(folder: Path, world: Path) -> int:
    index, retriever = Index(folder), Retriever.load(world / "retriever")
    index.check_retriever(retriever)
    return len(list(index.keys()))


def read_retriever(folder: Path, _: Path) -> int:
    retriever = Retriever.load(folder)
    text = retriever.encode_text(["w1 w2"])  # (1, D)
    images = retriever.encode_images(torch.ones(1, 1, 6), torch.zeros(1, 1, dtype=torch.bool))  # (1, D)
    return torch.cat([text, images]).shape[1]


READERS = {
    "store": read_store,
    "objects": read_store,
    "ids": read_ids,
    "index": read_index,
    "retriever": read_retriever,
}
READERS["objects"], READERS["pretrained"] = read_store, read_retriever


@pytest.mark.parametrize(
    ("kind", "found"), [("store", 20), ("objects", 7), ("ids", 5), ("index", 20), ("retriever", 8), ("pretrained", 8)]
)
def test_sound_artefacts_are_read(world: Path, kind: str, found: int) -> None:
    assert READERS[kind](world / kind, world) == found


def try_to_read(read: Callable[[], Any]) -> None:
    """It works, or says in plain words why not."""
    try:
        read()
    except InputError as error:
        assert 20 < len(str(error)) < 2000
        assert str(error).encode("utf-8", "backslashreplace")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("store", "meta.json"),
        ("store", "features.npy"),
        ("store", "keys.txt"),
        ("objects", "meta.json"),
        ("objects", "boxes.npy"),
        ("objects", "labels.npy"),
        ("objects", "scores.npy"),
        ("objects", "label_names.txt"),
        ("ids", "meta.json"),
        ("ids", "ids.npy"),
        ("index", "meta.json"),
        ("index", "embeddings.npy"),
        ("index", "keys.txt"),
        ("retriever", "config.json"),
        ("retriever", "model.safetensors"),
        ("retriever", "dict.txt"),
        ("pretrained", "text_encoder/config.json"),
        ("pretrained", "text_encoder/tokenizer.json"),
        ("pretrained", "text_encoder/tokenizer_config.json"),
    ],
)
@FUZZ
@given(data=st.data())
def test_reader_of_a_broken_artefact_says_what_is_wrong(
    world: Path, scratch: Path, kind: str, name: str, data: st.DataObject
) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(world / kind, scratch)
    (scratch / name).write_bytes(data.draw(BREAK[Path(name).suffix]((world / kind / name).read_bytes())))
    try_to_read(lambda: READERS[kind](scratch, world))


@FUZZ
@given(data=st.data(), suffix=st.sampled_from([".npy", ".npz", ".pt"]), single=st.booleans())
def test_importer_of_a_broken_array_says_what_is_wrong(
    scratch: Path, data: st.DataObject, suffix: str, single: bool
) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "f").mkdir(parents=True)
    buffer = io.BytesIO()
    array = np.ones((4, 3), np.float32)
    if suffix == ".npy":
        np.save(buffer, array)
        content = data.draw(broken_npy(buffer.getvalue()))
    else:
        np.savez(buffer, a=array) if suffix == ".npz" else torch.save(torch.from_numpy(array), buffer)
        whole = buffer.getvalue()
        flips = data.draw(st.dictionaries(st.integers(0, len(whole) - 1), st.integers(0, 255), max_size=6))
        content = bytes(flips.get(place, value) for place, value in enumerate(whole))
        content = content[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else content
    path = scratch / "f" / f"x{suffix}"
    path.write_bytes(content)
    (scratch / "keys.txt").write_text("a\nb\nc\nd\n")
    keys = scratch / "keys.txt" if single else None
    try_to_read(lambda: import_features(open_arrays(path if single else path.parent, keys), scratch / "out"))
    assert sorted(entry.name for entry in scratch.iterdir()) in (
        ["f", "keys.txt"],
        ["f", "keys.txt", "out"],
        ["f", "keys.txt", "out.partial"],
    )


@FUZZ
@given(data=st.data(), name=st.sampled_from(["plan.json", "000000.json", "000001.json", "features.npy"]))
def test_command_that_continues_a_broken_partial_says_what_is_wrong(
    scratch: Path, data: st.DataObject, name: str
) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    np.save(scratch / "f.npy", np.ones((5, 3), np.float32))
    (scratch / "keys.txt").write_text("a\nb\nc\nd\ne\n")

    def run(stop: bool) -> None:
        source = open_arrays(scratch / "f.npy", scratch / "keys.txt")
        if stop:
            whole = source.block
            source.block = lambda start, stop: 1 / 0 if start >= 4 else whole(start, stop)  # type: ignore[method-assign]
        import_features(source, scratch / "out", shard_size=2)

    with pytest.raises(ZeroDivisionError):
        run(stop=True)
    path = next((scratch / "out.partial").rglob(name))
    path.write_bytes(data.draw(BREAK[path.suffix](path.read_bytes())))
    try_to_read(lambda: run(stop=False))
    if (scratch / "out").exists():
        FeatureStore(scratch / "out")


@FUZZ
@given(content=broken_text(b"a.jpg\ta dog\nb.jpg\ta cat\n"))
@example(content=b"a.jpg\ta dog\x00\n")
@example(content=b"\xef\xbb\xbfa.jpg\tdog\r\n")
def test_reader_of_broken_text_says_what_is_wrong(scratch: Path, content: bytes) -> None:
    scratch.write_bytes(content)
    for read in (read_lines, read_captions, Vocabulary.load):
        try_to_read(lambda read=read: read(scratch))


class Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.sentinel),))


def npy_of_objects(evil: Malicious) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([evil], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def npz_of_objects(evil: Malicious) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([evil], dtype=object))
    return buffer.getvalue()


def torch_file(content: Any, as_zip: bool = True) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=as_zip)
    return buffer.getvalue()


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def check_refused(
    verb: str, flags: list[object], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, one message, nothing written but in --out, nothing run."""
    before = tree(folder)
    assert main([verb, *map(str, flags), "--out", str(folder / "out")]) == 2
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err, err
    assert err.count(f"visual-grounding {verb}: ") == 1
    new = {name for name in tree(folder) - before if not name.startswith("out.partial")}
    assert not new


@pytest.mark.parametrize(
    ("name", "build", "message"),
    [
        (
            "f.npy",
            npy_of_objects,
            "f.npy should hold a plain array, but can't be read: Array can't be memory-mapped: Python",
        ),
        ("f.npy", pickle.dumps, "f.npy should hold a plain array, but can't be read: "),
        ("f.npy", npz_of_objects, "it is an archive of several arrays; name it .npz"),
        ("f.pt", torch_file, "f.pt should hold tensors alone, but asks to run posix.mkdir when loaded. Nothing was"),
        ("f.pt", lambda evil: torch_file({"x": evil}), "asks to run posix.mkdir when loaded"),
        ("f.pt", lambda evil: torch_file(evil, as_zip=False), "asks to run posix.mkdir when loaded"),
        ("f.pt", pickle.dumps, "f.pt should hold "),
        ("d/a.npy", npy_of_objects, "a.npy should hold numbers, but holds Python objects: not loaded, for safety"),
        ("d/a.npy", npz_of_objects, "a.npy (an archive of several arrays; name it .npz)."),
        ("d/a.npz", npz_of_objects, "a.npz should hold numbers, but holds Python objects: not loaded, for safety"),
        ("d/a.pt", torch_file, "a.pt should hold tensors alone, but asks to run posix.mkdir when loaded"),
    ],
)
def test_import_never_runs_what_a_pickle_asks_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, build: Callable[[Malicious], bytes], message: str
) -> None:
    content = build(Malicious(tmp_path / "executed"))
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    (tmp_path / "keys.txt").write_text("a\n")
    flags = ["--arrays", path.parent if name.startswith("d/") else path, "--keys", tmp_path / "keys.txt"]
    check_refused("import", flags, message, tmp_path, capsys)
    with pytest.raises(FileExistsError):  # the pickle is a live one
        (tmp_path / "executed").mkdir()
        Malicious(tmp_path / "executed").__reduce__()[0](tmp_path / "executed")


def test_other_verbs_never_run_what_a_pickle_asks_for(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = Malicious(tmp_path / "executed")
    (tmp_path / "w.pth").write_bytes(torch_file({"conv1.weight": evil}))
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.png").write_bytes(b"x")
    flags: list[object] = ["--images", tmp_path / "images", "--backbone", "resnet18", "--weights", tmp_path / "w.pth"]
    check_refused(
        "extract", flags, "w.pth should be a state_dict of plain tensors, but can't be read", tmp_path, capsys
    )

    (tmp_path / "checkpoint_best.pt").write_bytes(torch_file({"model": evil}))
    message = "which could run code and isn't loaded"
    check_refused("export", ["--checkpoint", tmp_path / "checkpoint_best.pt"], message, tmp_path, capsys)

    for copied in ("retriever", "store"):
        shutil.copytree(world / copied, tmp_path / copied)
    (tmp_path / "retriever/model.safetensors").write_bytes(pickle.dumps(evil))
    flags = ["--retriever", tmp_path / "retriever", "--image-features", tmp_path / "store"]
    check_refused("index", flags, "model.safetensors should be a state_dict of plain tensors", tmp_path, capsys)

    shutil.copy(world / "retriever/model.safetensors", tmp_path / "retriever/model.safetensors")
    (tmp_path / "store/features.npy").write_bytes(npy_of_objects(evil))
    check_refused("index", flags, "features.npy should be a plain .npy array, but can't be read", tmp_path, capsys)


def test_retriever_never_runs_code_that_its_text_encoder_brings(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for copied in ("retriever", "store"):
        shutil.copytree(world / copied, tmp_path / copied)
    config = json.loads((tmp_path / "retriever/config.json").read_text())
    config["architecture"]["text_encoder"] = "pretrained"
    (tmp_path / "retriever/config.json").write_text(json.dumps(config))
    encoder = tmp_path / "retriever/text_encoder"
    encoder.mkdir()
    (encoder / "evil.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'executed')!r})\n")
    classes = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]}
    (encoder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": classes}))
    (encoder / "tokenizer_config.json").write_text(json.dumps({"auto_map": classes, "tokenizer_class": "Evil"}))
    flags = ["--retriever", tmp_path / "retriever", "--image-features", tmp_path / "store"]
    check_refused("index", flags, "but loading failed", tmp_path, capsys)
    assert not (tmp_path / "executed").exists()


def set_field(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize(
    ("broken", "damage", "message"),
    [
        (
            "store/meta.json",
            lambda p: p.write_text("[1]"),
            "meta.json should be the JSON description of a feature store",
        ),
        ("store/meta.json", lambda p: p.write_text("[" * 10**5), "meta.json should be the JSON description"),
        ("store/meta.json", lambda p: set_field(p, images=-20), "should have a count as 'images', but has -20."),
        ("store/meta.json", lambda p: set_field(p, images=10**30), "should have a count as 'images', but has 1000"),
        ("store/meta.json", lambda p: set_field(p, size=float("nan")), "should have a count as 'size', but has nan."),
        (
            "store/meta.json",
            lambda p: set_field(p, keys_sha256=None),
            "should have text as 'keys_sha256', but has None.",
        ),
        (
            "store/keys.txt",
            lambda p: p.write_text("a\nb\n"),
            "keys.txt should hold 20 image keys, one a row, but has 2",
        ),
        (
            "store/keys.txt",
            lambda p: p.write_bytes(b"\xff\n" * 20),
            "keys.txt should hold image keys, but can't be read",
        ),
        ("retriever/config.json", lambda p: p.write_text("3"), "config.json can't be used"),
        ("retriever/config.json", lambda p: p.unlink(), "config.json can't be used"),
        (
            "retriever/dict.txt",
            lambda p: p.write_text("w0 1\n"),
            "dict.txt should have the 40 words that this retriever was trained with, but has 1.",
        ),
        ("retriever/model.safetensors", lambda p: os.truncate(p, 100), "model.safetensors should be a state_dict"),
        ("index/embeddings.npy", lambda p: os.truncate(p, 200), "embeddings.npy should be a plain .npy array"),
        ("index/meta.json", lambda p: set_field(p, absent="no"), "should have a count as 'absent', but has 'no'."),
    ],
)
def test_commands_say_what_is_broken_and_return_2(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: str, damage: Callable, message: str
) -> None:
    for copied in ("retriever", "store", "index"):
        shutil.copytree(world / copied, tmp_path / copied)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in make_sentences()))
    damage(tmp_path / broken)
    flags: list[object] = ["--retriever", tmp_path / "retriever", "--device", "cpu"]
    if broken.startswith("index"):
        flags += ["--method", "dense", "--index", tmp_path / "index", "--text", tmp_path / "text"]
        check_refused("retrieve", flags, message, tmp_path, capsys)
    else:
        flags += ["--image-features", tmp_path / "store"]
        check_refused("index", flags, message, tmp_path, capsys)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("joint_size", 10**12),
        ("joint_size", -1),
        ("joint_size", 2**31),
        ("sru_layers", 10**9),
        ("image_feature_size", "6"),
        ("text_embed_size", 5.0),
        ("text_dropout", float("nan")),
        ("image_pooling", "no such"),
        ("text_encoder", ["sru"]),
        ("joint_batch_norm", 1),
    ],
)
def test_retriever_refuses_an_absurd_architecture_before_it_claims_memory(
    world: Path, tmp_path: Path, field: str, value: Any
) -> None:
    shutil.copytree(world / "retriever", tmp_path / "retriever")
    path = tmp_path / "retriever/config.json"
    architecture = {**json.loads(path.read_text())["architecture"], field: value}
    set_field(path, architecture=architecture)
    with pytest.raises(InputError, match=r"its architecture has .* as |should hold exactly the weights"):
        Retriever.load(tmp_path / "retriever")


def test_retriever_refuses_weights_and_signatures_that_say_nothing(world: Path, tmp_path: Path) -> None:
    shutil.copytree(world / "retriever", tmp_path / "retriever")
    path = tmp_path / "retriever/model.safetensors"
    weights = load_file(path)
    save_file({**weights, "image.projection.bias": torch.full((8,), torch.inf)}, path)
    with pytest.raises(InputError, match=r"but 1 of 6 have NaN or infinity \(image\.projection\.bias\)"):
        Retriever.load(tmp_path / "retriever")
    set_field(tmp_path / "retriever/config.json", signature=3)
    with pytest.raises(InputError, match=r"config\.json can't be used: signature should be text, but is 3"):
        Retriever.load(tmp_path / "retriever")


@pytest.mark.parametrize(
    ("file", "field", "value", "message"),
    [
        ("tokenizer_config.json", "model_max_length", [], r"but its tokenizer says \[\]"),
        ("config.json", "max_position_embeddings", 0, "but its configuration says 0"),
        ("config.json", "num_hidden_layers", 10**9, r"config\.json has 1000000000 as num_hidden_layers"),
        ("config.json", "num_attention_heads", 3, "text_encoder should describe a text encoder, but none can be built"),
    ],
)
def test_retriever_refuses_an_absurd_text_encoder(
    world: Path, tmp_path: Path, file: str, field: str, value: Any, message: str
) -> None:
    shutil.copytree(world / "pretrained", tmp_path / "pretrained")
    set_field(tmp_path / "pretrained/text_encoder" / file, **{field: value})
    with pytest.raises(InputError, match=message):
        Retriever.load(tmp_path / "pretrained")


def test_store_writer_refuses_a_broken_list_of_unreadable_images(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "out", ["a", "b"], 1, 3, {}, shard_size=2)
    for shard in writer.missing():
        writer.write(shard, np.ones((2, 1, 3)), {1: "broken"})
    for listed in ([[7, "x"]], [[-1, "x"]], [3], [["a", "b"]], [[1, 2]], [[1, "x", "y"]]):
        set_field(tmp_path / "out.partial/progress/000000.json", unreadable=listed)
        with pytest.raises(InputError, match=r"out\.partial should name the images that couldn't be read, .*Delete"):
            writer.publish("test")


def test_finished_table_with_broken_counts_is_still_read(world: Path, tmp_path: Path) -> None:
    retriever, index = Retriever.load(world / "retriever"), Index(world / "index")
    counts = retrieve_dense(retriever, index, make_sentences(), tmp_path / "ids")
    assert counts["empty"] == 1
    set_field(tmp_path / "ids/meta.json", counts=["empty"])
    assert retrieve_dense(retriever, index, make_sentences(), tmp_path / "ids")["empty"] == 0
