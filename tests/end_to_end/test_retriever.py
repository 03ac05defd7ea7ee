"""prepare, fairseq-train, export, index, retrieve in fresh processes: a retriever of coloured things."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run_command, train_in_two_processes
from conftest import write_store

from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.recall import recall_summary
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.storage.checkpoints import load_checkpoint
from visual_grounding.text.captions import read_captions

COLOURS = ["red", "green", "blue", "black", "white", "pink"]
THINGS = ["dog", "cat", "boat", "tree"]


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 images of a coloured thing (R = 4, F = 10: one-hot colour and thing), two captions each; a data folder."""
    folder = tmp_path_factory.mktemp("captions")
    names = [(colour, thing) for colour in COLOURS for thing in THINGS]
    rng = np.random.default_rng(0)
    features = rng.normal(size=(24, 4, 10)) * 0.1
    for row, (colour, thing) in enumerate(names):
        features[row, :2, COLOURS.index(colour)] += 1
        features[row, 1:, 6 + THINGS.index(thing)] += 1
    write_store(folder / "store", features)
    lines = [
        f"image{row}.jpg\t{caption}\n"
        for row, (colour, thing) in enumerate(names)
        for caption in (f"a {colour} {thing} .", f"The {thing} is {colour}")
    ]
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text("".join(lines))
    done = run_command(
        "visual-grounding", "prepare", "--train", folder / "train.tsv", "--valid", folder / "dev.tsv",
        "--out", folder / "data",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "train: 48 captions of 24 images" in done.stdout
    return folder


def train(captions: Path, user_dir: str, save_dir: Path, *more: object) -> subprocess.CompletedProcess[str]:
    done = run_command(
        "fairseq-train", captions / "data", "--user-dir", user_dir, "--task", "image_text_matching",
        "--arch", "visual_semantic_embedding", "--criterion", "hardest_negative_triplet",
        "--image-features", captions / "store", "--joint-size", 16, "--text-embed-size", 8, "--sru-layers", 2,
        "--batch-size", 16, "--optimizer", "adam", "--lr", 0.01, "--max-epoch", 2, "--cpu", "--seed", 1,
        "--num-workers", 0,
        "--no-epoch-checkpoints", "--best-checkpoint-metric", "recall_sum", "--maximize-best-checkpoint-metric",
        "--save-dir", save_dir, "--no-progress-bar", "--log-format", "simple", *more,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def export(checkpoint: Path, out: Path, *more: object) -> Retriever:
    done = run_command("visual-grounding", "export", "--checkpoint", checkpoint, "--out", out, *more)
    assert done.returncode == 0, done.stderr
    return Retriever.load(out)


def logged(output: str, subset: str) -> list[dict[str, float]]:
    """The numbers of each line of a subset's scores."""
    lines = re.findall(rf"valid on '{subset}' subset \| (.*)", output)
    return [{name: float(value) for name, value in re.findall(r"(\w+) ([-\d.]+)", line)} for line in lines]


def scores_of(retriever: Retriever, store: FeatureStore, path: Path) -> dict[str, float]:
    pairs = read_captions(path)
    rows = store.rows_of(key for key, _ in pairs)
    features, mask = store.gather(np.arange(len(store)))
    images = retriever.encode_images(torch.from_numpy(features), torch.from_numpy(mask))
    text = retriever.encode_text([caption for _, caption in pairs])
    return recall_summary(text, images, torch.tensor([rows[key] for key, _ in pairs]))


@pytest.fixture(scope="module")
def trained(captions: Path, user_dir: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A retriever trained until it finds most images, and the log of that."""
    save_dir = tmp_path_factory.mktemp("retriever")
    flags = ("--max-epoch", 20, "--triplet-direction", "both", "--joint-batch-norm", "--image-dropout", 0.1)
    return save_dir / "checkpoint_best.pt", train(captions, user_dir, save_dir, *flags).stdout


@pytest.fixture(scope="module")
def retriever(trained: tuple[Path, str], captions: Path) -> Retriever:
    return export(trained[0], captions / "retriever", "--data", captions / "data")


def test_retriever_learns_and_its_exported_folder_has_the_logged_scores(trained, retriever, captions):
    history = logged(trained[1], "valid")
    assert len(history) == 20
    best = max(history, key=lambda scores: scores["recall_sum"])
    assert best["text_to_image_r5"] > 0.9 and history[0]["text_to_image_r5"] < 0.9
    own = scores_of(retriever, FeatureStore(captions / "store"), captions / "dev.tsv")
    assert {name: round(value, 4) for name, value in own.items()} == {name: best[name] for name in own}


def test_retriever_remembers_how_its_features_were_made(retriever, captions, tmp_path):
    store = FeatureStore(captions / "store")
    assert json.loads((retriever.folder / "config.json").read_text())["kind"] == "joint_embedding"
    assert retriever.image_features == store.signature
    np.save(tmp_path / "noise.npy", np.random.default_rng(0).normal(size=store.features.shape))
    flags = ["--arrays", tmp_path / "noise.npy", "--keys", captions / "store/keys.txt", "--out", tmp_path / "noise"]
    assert run_command("visual-grounding", "import", *flags).returncode == 0
    flags = ["--retriever", retriever.folder, "--image-features", tmp_path / "noise", "--out", tmp_path / "index"]
    done = run_command("visual-grounding", "index", *flags)
    assert done.returncode == 2 and f"≠ {store.signature}. Make them with" in done.stderr, done.stderr
    assert done.stderr.endswith(" See --image-features-unchecked.\n")


def test_exported_embeddings_are_those_of_the_fairseq_model(trained, retriever, captions):
    from fairseq import checkpoint_utils

    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(trained[0])])
    model = models[0].eval()
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    batch = dataset.collater([dataset[index] for index in range(len(dataset))])
    with torch.no_grad():
        text, images = model(**batch["net_input"])
    captions_ = [caption for _, caption in read_captions(captions / "dev.tsv")]
    torch.testing.assert_close(retriever.encode_text(captions_, batch_size=5), text, atol=1e-5, rtol=0)
    features, mask = FeatureStore(captions / "store").gather(batch["image_rows"].numpy())
    encoded = retriever.encode_images(torch.from_numpy(features), torch.from_numpy(mask))
    torch.testing.assert_close(encoded, images, atol=1e-5, rtol=0)


def test_index_and_retrieve_find_images_and_leave_a_sentences_own_away(retriever, captions, tmp_path):
    done = run_command(
        "visual-grounding", "index", "--retriever", retriever.folder, "--image-features", captions / "store",
        "--out", tmp_path / "index", "--shard-size", 7,
    )  # fmt: skip
    assert done.returncode == 0 and "24 images" in done.stdout, done.stderr
    pairs = read_captions(captions / "dev.tsv")
    (tmp_path / "text").write_text("".join(caption + "\n" for _, caption in pairs) + "\n")
    (tmp_path / "keys").write_text("".join(key + "\n" for key, _ in pairs) + "\n")
    tables = {}
    for name, more in {"own": [], "other": ["--exclude-paired", tmp_path / "keys"]}.items():
        done = run_command(
            "visual-grounding", "retrieve", "--method", "dense", "--retriever", retriever.folder,
            "--text", tmp_path / "text", "--index", tmp_path / "index", "-n", 3, "--out", tmp_path / name,
            "--shard-size", 10, *more,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "warning: 1 of 49 sentences (2.0 %) are empty, or hold nothing that the retriever reads" in done.stderr
        tables[name] = ImageIds(tmp_path / name)
        tables[name].check_against(FeatureStore(captions / "store"))
    own = np.repeat(np.arange(24), 2)
    found = (tables["own"].ids[:48] == own[:, None]).any(axis=1)
    assert found.mean() > 0.7
    assert not (tables["other"].ids[:48] == own[:, None]).any()
    for ids, first, place in zip(tables["other"].ids[:48], tables["own"].ids[:48], own):
        assert [row for row in first if row != place] == list(ids)[: 3 - (place in first)]
    assert (tables["own"].ids[48] == -1).all() and (tables["own"].scores[48] == 0).all()


def test_validate_scores_every_subset_by_itself(trained, captions, user_dir):
    (captions / "data/few.tsv").write_text("".join((captions / "dev.tsv").read_text().splitlines(True)[:10]))
    done = run_command(
        "fairseq-validate", captions / "data", "--user-dir", user_dir, "--task", "image_text_matching",
        "--image-features", captions / "store", "--path", trained[0], "--valid-subset", "valid,few", "--batch-size", 7,
        "--cpu", "--log-format", "simple", "--no-progress-bar",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    whole, few = logged(done.stdout, "valid")[-1], logged(done.stdout, "few")[-1]
    assert whole["recall_sum"] == max(scores["recall_sum"] for scores in logged(trained[1], "valid"))
    assert few["text_to_image_r5"] == 1.0  # five images only


@pytest.mark.slow
def test_two_processes_score_the_whole_split(captions, user_dir, tmp_path):
    """Rank 1 has fewer batches, so fairseq gives it a dummy one; both ranks must see all 48 captions once."""
    outputs = train_in_two_processes(
        captions / "data", "--user-dir", user_dir,
        "--task", "image_text_matching", "--arch", "visual_semantic_embedding",
        "--criterion", "hardest_negative_triplet", "--num-workers", 0,
        "--image-features", captions / "store", "--text-encoder", "bag", "--joint-size", 16, "--text-embed-size", 8,
        "--batch-size", 16, "--optimizer", "adam", "--lr", 0.01, "--max-epoch", 1, "--cpu", "--no-epoch-checkpoints",
        "--best-checkpoint-metric", "recall_sum", "--maximize-best-checkpoint-metric", "--save-dir", tmp_path / "ck",
        "--log-format", "simple", "--no-progress-bar",
    )  # fmt: skip
    scores = logged(outputs[0], "valid")[-1]
    retriever = export(tmp_path / "ck/checkpoint_best.pt", tmp_path / "retriever", "--data", captions / "data")
    own = scores_of(retriever, FeatureStore(captions / "store"), captions / "dev.tsv")
    assert {name: round(value, 4) for name, value in own.items()} == {name: scores[name] for name in own}


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of random weights with a word-level vocabulary, as transformers saves it."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("bert") / "tiny"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "is", ".", *COLOURS, *THINGS]
    folder.mkdir()
    (folder / "words.txt").write_text("".join(word + "\n" for word in words))
    BertTokenizerFast(str(folder / "words.txt"), model_max_length=12).save_pretrained(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=12, **size)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("freeze", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_pretrained_text_encoder_trains_and_its_export_needs_no_other_folder(
    freeze, captions, user_dir, tiny_bert, tmp_path
):
    from transformers import AutoModel

    source = shutil.copytree(tiny_bert, tmp_path / "bert")
    train(captions, user_dir, tmp_path, "--text-encoder", source, *(["--text-encoder-freeze"] if freeze else []))
    retriever = export(tmp_path / "checkpoint_best.pt", tmp_path / "retriever")
    before = AutoModel.from_pretrained(source).state_dict()["embeddings.word_embeddings.weight"]
    after = retriever.embedding.text.encoder.model.state_dict()["embeddings.word_embeddings.weight"]
    assert torch.equal(before, after) == freeze
    shutil.rmtree(source)
    again = Retriever.load(tmp_path / "retriever")
    text = ["a red dog", "the cat is pink " * 5]
    torch.testing.assert_close(again.encode_text(text), retriever.encode_text(text))
    assert (again.max_tokens, again.tokenize(text)[1]) == (12, 1)
    weights = load_checkpoint(tmp_path / "checkpoint_best.pt")["model"]
    assert not any("pooler" in name for name in weights)
