"""What version 0.1.0 wrote still loads, and gives what it gave then. `README.md` says how it was made."""

import filecmp
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run_command

from visual_grounding.cli.main import main
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.index import Index
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.storage.checkpoints import load_checkpoint

MADE = Path(__file__).parent / "0.1.0"
TABLES = {
    "dense/train": ["dense", "--retriever", "retriever", "--index", "index"],
    "ivf/train": ["dense", "--retriever", "retriever", "--index", "index-ivf"],
    "excluded/train": ["dense", "--retriever", "retriever", "--index", "index", "--exclude-paired", "train.keys"],
    "keyword/train": ["keyword", "--captions", "captions.tsv", "--image-features", "features/mean"],
    "paired/train": ["paired", "--keys", "train.keys", "--image-features", "features/mean"],
}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to work in."""
    shutil.copytree(MADE, tmp_path / "made")
    monkeypatch.chdir(tmp_path / "made")
    return tmp_path / "made"


def retrieve(table: str, out: Path) -> int:
    method, *flags = TABLES[table]
    size = [] if method == "paired" else ["-n", "4"]
    device = ["--device", "cpu"] if method == "dense" else []
    return main(["retrieve", "--method", method, *flags, *size, *device, "--text", "train.en", "--out", str(out)])


@pytest.mark.parametrize("store", ["mean", "imported"])
def test_feature_store_is_read(store: str) -> None:
    found = FeatureStore(MADE / "features" / store)
    features, padding_mask = found.gather(np.arange(24))
    assert len(found) == 24 and not padding_mask.any()
    assert np.array_equal(features, np.load(MADE / "features" / store / "features.npy"))
    assert found.rows_of(["07.png"]) == {"07.png": 7}


@pytest.mark.parametrize("table", TABLES)
def test_image_ids_fit_their_store(table: str) -> None:
    ids = ImageIds(MADE / "ids" / table)
    ids.check_against(FeatureStore(MADE / "features/mean"))
    ids.check_lines(40, "train.en")
    assert ids.ids.shape == (40, 1 if table == "paired/train" else 4)
    assert ids.ids.max() < 24 and (ids.ids >= 0).any()


@pytest.mark.parametrize("index", ["index", "index-ivf"])
def test_index_and_retriever_find_the_images_of_the_table(index: str) -> None:
    found, retriever = Index(MADE / index), Retriever.load(MADE / "retriever")
    found.check_retriever(retriever)  # its identity is what it was
    lines = (MADE / "train.en").read_text().splitlines()
    table = ImageIds(MADE / "ids" / ("dense/train" if index == "index" else "ivf/train"))
    scores, ids = found.search(retriever.encode_text(lines), 4)
    assert np.array_equal(ids.numpy(), table.ids)
    np.testing.assert_allclose(scores.numpy(), table.scores, atol=1e-3)


@pytest.mark.parametrize("table", TABLES)
def test_table_is_confirmed_and_made_anew_alike(table: str, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert retrieve(table, made / "ids" / table) == 0
    assert "nothing was done" in capsys.readouterr().err
    assert retrieve(table, made / "new") == 0
    assert filecmp.cmp(made / "new/ids.npy", MADE / "ids" / table / "ids.npy", shallow=False)
    old, new = (json.loads((folder / "meta.json").read_text()) for folder in (MADE / "ids" / table, made / "new"))
    assert len(new.pop("text_sketches")) == 32  # all that is new
    assert old == new


@pytest.mark.parametrize("kind", ["exact", "ivf"])
def test_index_is_confirmed_and_made_anew_alike(kind: str, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = "index" if kind == "exact" else "index-ivf"
    more = [] if kind == "exact" else ["--kind", "ivf", "--lists", "2"]
    flags = ["index", "--retriever", "retriever", "--image-features", "features/mean", "--device", "cpu", *more]
    assert main([*flags, "--out", before]) == 0
    assert "nothing was done" in capsys.readouterr().err
    assert main([*flags, "--out", "new"]) == 0
    old, new = (json.loads((made / name / "meta.json").read_text()) for name in (before, "new"))
    assert old.pop("largest_norm") == pytest.approx(new.pop("largest_norm"))
    assert old == new
    vectors = [np.load(made / name / "embeddings.npy") for name in (before, "new")]
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)


def test_retriever_checkpoint_is_exported_to_the_same_weights(made: Path) -> None:
    assert main(["export", "--checkpoint", "checkpoints/retriever.pt", "--data", "captions", "--out", "new"]) == 0
    retrievers = [Retriever.load(made / name) for name in ("retriever", "new")]
    before, after = (retriever.embedding.state_dict() for retriever in retrievers)
    assert before.keys() == after.keys()
    # `retriever` is the best checkpoint, which was the last one.
    assert all(torch.equal(before[name], after[name]) for name in before)


def translation_flags(user_dir: str, made: Path) -> list[object]:
    return [
        made / "bin", "--user-dir", user_dir, "--task", "grounded_translation", "--cpu", "--no-progress-bar",
        "--image-features", made / "features/mean", "--image-ids", made / "ids/dense",
    ]  # fmt: skip


def test_translation_checkpoint_translates_as_before(made: Path, user_dir: str) -> None:
    done = run_command(
        "fairseq-generate", *translation_flags(user_dir, made), "--gen-subset", "valid", "--beam", 2,
        "--path", made / "checkpoints/translation.pt",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = sorted(line for line in done.stdout.splitlines() if line.startswith("H-"))
    expected = (MADE / "translations.txt").read_text().splitlines()
    assert [line.split("\t")[::2] for line in found] == [line.split("\t")[::2] for line in expected]
    for line, before in zip(found, expected):
        assert float(line.split("\t")[1]) == pytest.approx(float(before.split("\t")[1]), abs=1e-4)


@pytest.mark.parametrize("batches_done", [0, 1])
def test_training_is_resumed_from_a_retriever_checkpoint(batches_done: int, made: Path, user_dir: str) -> None:
    """At the end of an epoch, and within one, where fairseq loads the meters, too: `RetrievalMeter` is among them."""
    state = load_checkpoint(made / "checkpoints/retriever.pt")
    assert state["extra_state"]["train_iterator"]["epoch"] == 4  # the next
    state["extra_state"]["train_iterator"]["iterations_in_epoch"] = batches_done
    assert "RetrievalMeter" in {kind for _, _, kind, _ in state["extra_state"]["metrics"]["valid"]}
    (made / "save").mkdir()
    torch.save(state, made / "save/checkpoint_last.pt")
    done = run_command(
        "fairseq-train", made / "captions", "--user-dir", user_dir, "--task", "image_text_matching", "--cpu",
        "--arch", "visual_semantic_embedding", "--criterion", "hardest_negative_triplet", "--batch-size", 16,
        "--image-features", made / "features/mean", "--text-encoder", "bag", "--joint-size", 16,
        "--text-embed-size", 16, "--optimizer", "adam", "--lr", 0.01, "--max-epoch", 4, "--seed", 1, "--num-workers", 0,
        "--no-progress-bar", "--log-format", "simple", "--no-epoch-checkpoints", "--save-dir", made / "save",
    )  # fmt: skip
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    assert "begin training epoch 4" in log and "begin training epoch 3" not in log
    assert "recall_sum" in log and f"num_updates {12 - batches_done}" in log


def test_training_is_resumed_from_a_translation_checkpoint(made: Path, user_dir: str) -> None:
    (made / "save").mkdir()
    shutil.copy(made / "checkpoints/translation.pt", made / "save/checkpoint_last.pt")
    sizes = [
        (f"--{side}-{name}", size)
        for side in ("encoder", "decoder")
        for name, size in (("layers", 1), ("embed-dim", 16), ("ffn-embed-dim", 16), ("attention-heads", 2))
    ]
    done = run_command(
        "fairseq-train", *translation_flags(user_dir, made), "--arch", "visual_aware_transformer_tiny",
        *(word for pair in sizes for word in pair), "--optimizer", "adam", "--lr", 0.01,
        "--criterion", "label_smoothed_cross_entropy", "--max-tokens", 256, "--max-epoch", 3, "--seed", 1,
        "--log-format", "simple", "--no-epoch-checkpoints", "--save-dir", made / "save",
    )  # fmt: skip
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    assert "Loaded checkpoint" in log and "begin training epoch 3" in log and "begin training epoch 2" not in log
