"""prepare, export, index, retrieve: what they print, and what they refuse, in one line with status 2."""

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write_store

from visual_grounding.cli.main import main
from visual_grounding.retrieval.image_ids import ImageIds

CAPTIONS = "a.jpg\tA dog runs .\na.jpg\tThe dog .\nb.jpg\tA cat .\n"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_prepare_writes_a_folder_that_fairseq_train_reads(tmp_path, capsys):
    (tmp_path / "c.tsv").write_text(CAPTIONS)
    (tmp_path / "d.tsv").write_text(CAPTIONS)
    flags = ["--train", tmp_path / "c.tsv", "--valid", tmp_path / "d.tsv", "--min-count", 2, "--out", tmp_path / "data"]
    for _ in range(2):  # again: the same
        status, out, _ = run(capsys, "prepare", *flags)
        assert status == 0 and "train: 3 captions of 2 images" in out and "dict.txt: 3 words" in out
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["dict.txt", "train.tsv", "valid.tsv"]
    assert (tmp_path / "data/dict.txt").read_text() == ". 3\na 2\ndog 2\n"
    assert (tmp_path / "data/valid.tsv").read_text() == CAPTIONS


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        ("a.jpg A dog\n", [], r"c.tsv:1 should be `key<TAB>caption`, but is 'a.jpg A dog'"),
        (
            "a.jpg\tA dog\na\0.jpg\tA cat\n",
            [],
            r"c.tsv:2 should be the caption of an image, but its key is 'a\x00.jpg'",
        ),
        (
            f"a.jpg\t{'dog ' * 25_001}\n",
            [],
            "c.tsv:1 should be the caption of an image, but its caption has 100004 letters",
        ),
        (CAPTIONS, ["--min-count", 0], "--min-count should be at least 1, but is 0"),
    ],
)
def test_prepare_refuses(tmp_path, capsys, content, flags, message):
    (tmp_path / "c.tsv").write_text(content)
    (tmp_path / "valid.tsv").write_text(CAPTIONS)
    out = ["--out", tmp_path / "data"]
    status, _, error = run(
        capsys, "prepare", "--train", tmp_path / "c.tsv", "--valid", tmp_path / "valid.tsv", *out, *flags
    )
    assert status == 2 and message in error and error.count("\n") == 1


def checkpoint(folder: Path, **model: object) -> Path:
    """What `fairseq-train` saves of a bag-of-words retriever with 5 words."""
    choices = {
        "_name": "visual_semantic_embedding", "text_encoder": "bag", "text_embed_size": 2, "sru_layers": 4,
        "text_dropout": 0.25, "image_dropout": 0.5, "joint_batch_norm": False, "text_encoder_freeze": False, **model,
    }  # fmt: skip
    sizes = {"text.encoder.embedding.weight": (9, 2), "text.projection.weight": (3, 2), "text.projection.bias": (3,),
             "image.projection.weight": (3, 4), "image.projection.bias": (3,)}  # fmt: skip
    weights = {f"embedding.{name}": torch.ones(size) for name, size in sizes.items()}
    torch.save({"cfg": {"model": choices}, "model": weights}, folder / "checkpoint.pt")
    return folder / "checkpoint.pt"


def test_export_refuses_another_architecture_a_missing_and_another_dictionary(tmp_path, capsys):
    flags = ["--out", tmp_path / "retriever"]
    path = checkpoint(tmp_path, _name="transformer")
    status, _, error = run(capsys, "export", "--checkpoint", path, *flags)
    known = "visual_semantic_embedding or token_image_matching"
    assert status == 2 and f"should be of architecture {known}, but is of 'transformer'" in error
    path = checkpoint(tmp_path)
    status, _, error = run(capsys, "export", "--checkpoint", path, *flags)
    assert status == 2 and "is needed, too: the words of text encoder 'bag' are in its dict.txt." in error
    assert error.endswith(" See --data.\n")
    (tmp_path / "dict.txt").write_text("a 1\n")
    status, _, error = run(capsys, "export", "--checkpoint", path, "--data", tmp_path, *flags)
    assert status == 2 and "should have the 9 words and symbols of" in error and "but has 5." in error
    assert not (tmp_path / "retriever").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["dense", "--text", "t"], "--method dense also needs --retriever and --index."),
        (["paired", "--keys", "k"], "--method paired also needs --image-features."),
        (["keyword", "--text", "t"], "--method keyword also needs --captions and --image-features."),
    ],
)
def test_retrieve_names_the_flags_that_its_method_needs(tmp_path, capsys, flags, message):
    status, _, error = run(capsys, "retrieve", "--out", tmp_path / "ids", "--method", *flags)
    assert status == 2 and message in error


def test_verbs_work_one_after_the_other_and_warn_with_counts(tmp_path, capsys):
    path = checkpoint(tmp_path)
    (tmp_path / "dict.txt").write_text("".join(f"{word} 1\n" for word in "abcde"))
    features = np.random.default_rng(0).normal(size=(4, 1, 4))
    features[2] = 0
    store = write_store(tmp_path / "store", features)
    status, out, _ = run(capsys, "export", "--checkpoint", path, "--data", tmp_path, "--out", tmp_path / "retriever")
    assert status == 0 and "bag text encoder, joint size 3\nretriever|text:bag|checkpoint:" in out
    retriever = ["--retriever", tmp_path / "retriever"]
    status, out, _ = run(capsys, "index", *retriever, "--image-features", store, "--out", tmp_path / "index")
    assert status == 0 and "4 images\nindex|retriever:" in out and "1 of 4 images have no features" in out
    (tmp_path / "text").write_text("a b\n\n" + "c " * 400 + "\n")
    flags = ["--method", "dense", *retriever, "--index", tmp_path / "index", "--text", tmp_path / "text", "-n", 4]
    status, out, error = run(capsys, "retrieve", *flags, "--out", tmp_path / "ids")
    assert status == 0 and "3 sentences, 4 images each\nretrieve|method:dense|n:4|retriever:" in out
    assert error.splitlines() == [
        "warning: 1 of 3 sentences (33.3 %) are empty, or hold nothing that the retriever reads; they have no image.",
        "warning: 1 of 3 sentences (33.3 %) were cut at 256 tokens to find their images.",
        "warning: 2 of 3 sentences (66.7 %) have fewer than 4 images: the collection has no more.",
    ]
    status, _, error = run(capsys, "retrieve", *flags, "--device", "cuda:99", "--out", tmp_path / "nowhere")
    assert status == 2 and "device cuda:99 doesn't exist here; there is: cpu. See --device." in error
    (tmp_path / "keys").write_text("image1.jpg\n\nimage9.jpg\n")
    flags = ["--method", "paired", "--image-features", store, "--keys", tmp_path / "keys", "--text", tmp_path / "text"]
    status, out, error = run(capsys, "retrieve", *flags, "--out", tmp_path / "paired")
    assert status == 0 and "3 sentences, 1 images each" in out
    assert error == (
        "warning: 2 of 3 sentences (66.7 %) have no image; 1 of them have a key that the store doesn't have, such as "
        "'image9.jpg' in line 3; the store's are like 'image0.jpg'.\n"
    )
    status, _, error = run(capsys, "retrieve", *flags, "--strict", "--out", tmp_path / "strict")
    assert status == 2 and "1 of 3 aren't, the first 'image9.jpg' in line 3" in error


def make_retriever(folder, capsys):
    """A retriever of five words for images of 4 numbers, and a store of 40."""
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in "abcde"))
    flags = ["--checkpoint", checkpoint(folder), "--data", folder, "--out", folder / "retriever"]
    assert run(capsys, "export", *flags)[0] == 0
    return folder / "retriever", write_store(folder / "store", np.random.default_rng(0).normal(size=(40, 1, 4)))


def test_index_of_another_kind_is_searched_and_says_what_it_misses(tmp_path, capsys):
    pytest.importorskip("faiss")
    retriever, store = make_retriever(tmp_path, capsys)
    (tmp_path / "text").write_text("a b\n\nc d\n")
    index = ["index", "--retriever", retriever, "--image-features", store, "--kind", "ivf", "--faiss-shard-size", 25]
    status, out, _ = run(capsys, *index, "--lists", 4, "--out", tmp_path / "index")
    assert status == 0 and "40 images\nindex|retriever:" in out and "|kind:ivf|lists:4|" in out
    text = ["--retriever", retriever, "--index", tmp_path / "index", "--text", tmp_path / "text"]
    found = ["retrieve", "--method", "dense", *text, "-n", 2, "--nprobe", 4, "--out", tmp_path / "ids"]
    for _ in range(2):  # again: the same
        status, out, _ = run(capsys, *found)
        assert status == 0 and "|kind:ivf|probes:4|recall:1.0000|" in out
        assert out.endswith("100.0 % of the 2 nearest images were found, on a sample of sentences.\n")
    status, _, error = run(capsys, *index, "--key-column", "name", "--out", tmp_path / "other")
    assert status == 2 and "columns are those of pictures in parquet, but a feature store is given. See --im" in error
    status, _, error = run(capsys, *index, "--code-bytes", 2, "--out", tmp_path / "other")
    assert status == 2 and "code bytes are for an index of kind pq, but the kind is ivf." in error
    status, _, error = run(capsys, *index, "--lists", 3, "--out", tmp_path / "index")
    assert status == 2 and "'lists': 4" in error and "'lists': 3" in error


def test_retrieve_keyword_warns_with_counts(tmp_path, capsys):
    store = write_store(tmp_path / "store", np.ones((3, 1, 4)))
    (tmp_path / "c.tsv").write_text("image0.jpg\tA dog.\nimage2.jpg\tA dog and a cat\nimage9.jpg\ta tree\n")
    (tmp_path / "text").write_text("the dog\n\nof the\ntwo cats, one cat\n")
    (tmp_path / "keys").write_text("image0.jpg\n\n\nimage8.jpg\n")
    flags = ["--method", "keyword", "--captions", tmp_path / "c.tsv", "--image-features", store]
    flags += ["--text", tmp_path / "text", "--exclude-paired", tmp_path / "keys", "-n", 2]
    status, out, error = run(capsys, "retrieve", *flags, "--out", tmp_path / "ids")
    assert status == 0 and "4 sentences, 2 images each\nretrieve|method:keyword|n:2|captions:" in out
    assert ImageIds(tmp_path / "ids").ids.tolist() == [[2, -1], [-1, -1], [-1, -1], [2, -1]]
    assert error.splitlines() == [
        "warning: 1 of 4 sentences (25.0 %) are empty; they have no image.",
        "warning: 1 of 4 sentences (25.0 %) have no word that a caption has as its topic; they have no image.",
        "warning: 2 of 4 sentences (50.0 %) have fewer than 2 images: no more captions share a topic word.",
        f"warning: 1 of 3 captions (33.3 %) are of images that {store} doesn't have; they aren't used.",
        "warning: 1 of 4 sentences (25.0 %) have a key in --exclude-paired that the collection doesn't have.",
    ]
    (tmp_path / "stop").write_text("dog\n")
    status, out, _ = run(capsys, "retrieve", *flags, "--stop-words", tmp_path / "stop", "--out", tmp_path / "other")
    assert status == 0 and ImageIds(tmp_path / "other").ids[0].tolist() == [-1, -1]
