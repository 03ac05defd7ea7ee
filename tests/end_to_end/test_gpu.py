"""On a CUDA device: `pytest -m gpu`. Skipped elsewhere."""

import shutil

import numpy as np
import pytest
import torch
from commands import run_command
from PIL import Image

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("precision", ["--fp16", "--amp"])
@pytest.mark.parametrize(
    "arch", ["visual_aware_transformer", "gated_fusion_transformer", "selective_attention_transformer"]
)
def test_half_precision_trains_and_generates(arch, precision, tiny_translation, train_flags, user_dir, tmp_path):
    flags = train_flags(tiny_translation, tmp_path, precision, "--visual-standardise", arch=arch)
    flags.remove("--cpu")
    done = run_command("fairseq-train", *flags)
    assert done.returncode == 0, done.stderr
    done = run_command(
        "fairseq-generate", tiny_translation / "bin", "--user-dir", user_dir, "--task", "grounded_translation",
        "--path", tmp_path / "checkpoint_last.pt", "--image-features", tiny_translation / "store",
        "--image-ids", tiny_translation / "ids", "--beam", 3, "--fp16",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sum(line.startswith("H-") for line in done.stdout.splitlines()) == 12


@pytest.mark.parametrize("precision", [(), ("--fp16",), ("--amp",)])
def test_a_stream_is_pretrained_and_translated_from_on_cuda(precision, tiny_pairs, pretrain_flags, user_dir, tmp_path):
    images = ["--image-features", tiny_pairs / "store", "--image-ids", tiny_pairs / "ids"]
    sizes = ["--decoder-layers", 2, "--decoder-embed-dim", 32, "--decoder-ffn-embed-dim", 64,
             "--decoder-attention-heads", 2, "--encoder-layers", 2, "--encoder-embed-dim", 32,
             "--encoder-ffn-embed-dim", 64, "--encoder-attention-heads", 2]  # fmt: skip
    task = [
        tiny_pairs / "bin",
        "--user-dir",
        user_dir,
        "--task",
        "grounded_translation",
        "-s",
        "en",
        "-t",
        "de",
        *images,
    ]
    first = [*pretrain_flags(tiny_pairs, tmp_path / "vtlm"), *precision]
    first.remove("--cpu")
    then = [
        *task, "--arch", "vtlm_translation_tiny", *sizes, "--max-source-positions", 64, "--max-target-positions", 64,
        "--visual-pretrained", tmp_path / "vtlm/checkpoint_last.pt", "--criterion", "label_smoothed_cross_entropy",
        "--optimizer", "adam", "--lr", 0.001, "--batch-size", 16, "--max-epoch", 1, "--no-progress-bar",
        "--save-dir", tmp_path / "translation", *precision,
    ]  # fmt: skip
    for flags in (first, then):
        done = run_command("fairseq-train", *flags)
        assert done.returncode == 0, done.stderr
    generation = ["--path", tmp_path / "translation/checkpoint_last.pt", "--beam", 3, "--fp16"]
    done = run_command("fairseq-generate", *task, *generation)
    assert done.returncode == 0, done.stderr
    assert sum(line.startswith("H-") for line in done.stdout.splitlines()) == 12


def test_bfloat16_trains_under_hydra(tiny_translation, user_dir, tmp_path):
    done = run_command(
        "fairseq-hydra-train", f"common.user_dir={user_dir}", "common.bf16=true", f"checkpoint.save_dir={tmp_path}",
        "+task._name=grounded_translation", f"+task.data={tiny_translation}/bin",
        f"+task.image_features={tiny_translation}/store", f"+task.image_ids={tiny_translation}/ids",
        "+model._name=visual_aware_transformer", "+model.encoder_layers=1", "+model.decoder_layers=1",
        "+criterion._name=label_smoothed_cross_entropy", "+criterion.label_smoothing=0.1", "+optimizer._name=adam",
        "+lr_scheduler._name=fixed", "dataset.max_tokens=128", "optimization.lr=[0.001]", "optimization.max_epoch=1",
        f"hydra.run.dir={tmp_path}/run",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def captions(tiny_translation, tmp_path_factory):
    """A data folder for a retriever of the tiny task's images: what is on an image is its kind."""
    folder = tmp_path_factory.mktemp("captions")
    keys = (tiny_translation / "store/keys.txt").read_text().split()
    lines = [f"{key}\tthe {('bat', 'club')[row % 2]} number {row}\n" for row, key in enumerate(keys)]
    (folder / "captions.tsv").write_text("".join(lines))
    shutil.copy(folder / "captions.tsv", folder / "valid.tsv")
    done = run_command(
        "visual-grounding", "prepare", "--train", folder / "captions.tsv", "--valid", folder / "valid.tsv",
        "--out", folder / "data",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "data"


def train_retriever(data, user_dir, save_dir, *more):
    done = run_command(
        "fairseq-train", data, "--user-dir", user_dir, "--task", "image_text_matching", "--arch",
        "visual_semantic_embedding", "--criterion", "hardest_negative_triplet", "--joint-size", 16, "--text-embed-size",
        8, "--sru-layers", 2, "--batch-size", 8, "--optimizer", "adam", "--lr", 0.01, "--max-epoch", 2, "--seed", 1,
        "--joint-batch-norm", "--no-epoch-checkpoints", "--best-checkpoint-metric", "recall_sum",
        "--maximize-best-checkpoint-metric", "--save-dir", save_dir, "--no-progress-bar", "--log-format", "simple",
        *more,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "recall_sum" in done.stdout + done.stderr
    return save_dir / "checkpoint_last.pt"


@pytest.mark.parametrize("precision", [(), ("--fp16",), ("--bf16",), ("--amp",)])
def test_a_retriever_trained_on_cuda_finds_there_what_it_finds_on_the_cpu(
    precision, captions, tiny_translation, user_dir, tmp_path
):
    store = tiny_translation / "store"
    checkpoint = train_retriever(captions, user_dir, tmp_path / "training", "--image-features", store, *precision)
    commands = [("export", "--checkpoint", checkpoint, "--data", captions, "--out", tmp_path / "retriever")]
    for device in ("cpu", "cuda"):
        shared = ("--retriever", tmp_path / "retriever", "--device", device)
        index = tmp_path / f"index-{device}"
        commands.append(("index", *shared, "--image-features", store, "--out", index))
        commands.append(("retrieve", "--method", "dense", *shared, "--index", index, "-n", 3, "--text",
                         tiny_translation / "text/test.en", "--out", tmp_path / f"ids-{device}"))  # fmt: skip
    for command in commands:
        done = run_command("visual-grounding", *command)
        assert done.returncode == 0, done.stderr
    ids = [np.load(tmp_path / f"ids-{device}/ids.npy") for device in ("cpu", "cuda")]
    scores = [np.load(tmp_path / f"ids-{device}/scores.npy") for device in ("cpu", "cuda")]
    np.testing.assert_allclose(*scores, atol=5e-3)
    assert (ids[0] == ids[1]).mean() >= 0.9  # two images that are equally near may change places


@pytest.mark.parametrize("precision", [(), ("--fp16",)])
def test_a_network_is_trained_with_its_retriever_on_cuda(precision, user_dir, tmp_path):
    (tmp_path / "photos").mkdir()
    for number in range(12):
        Image.effect_noise((40, 32), 20 * number + 5).convert("RGB").save(tmp_path / f"photos/{number}.png")
    (tmp_path / "captions.tsv").write_text("".join(f"{n}.png\tnoise of {n}\n" for n in range(12)))
    shutil.copy(tmp_path / "captions.tsv", tmp_path / "valid.tsv")
    done = run_command(
        "visual-grounding", "prepare", "--train", tmp_path / "captions.tsv", "--valid", tmp_path / "valid.tsv",
        "--out", tmp_path / "data",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    train_retriever(
        tmp_path / "data", user_dir, tmp_path / "training", "--image-folder", tmp_path / "photos", "--image-backbone",
        "resnet18", "--image-backbone-weights", "none", "--image-size", 64, "--num-workers", 1, *precision,
    )  # fmt: skip


@pytest.mark.parametrize("precision", [(), ("--fp16",)])
def test_typed_sentences_get_their_images_on_cuda(
    precision, captions, tiny_translation, train_flags, user_dir, tmp_path
):
    store = tiny_translation / "store"
    flags = train_flags(tiny_translation, tmp_path / "translator")
    flags.remove("--cpu")
    assert run_command("fairseq-train", *flags).returncode == 0
    checkpoint = train_retriever(captions, user_dir, tmp_path / "training", "--image-features", store)
    retriever, index = tmp_path / "retriever", tmp_path / "index"
    for command in (
        ("export", "--checkpoint", checkpoint, "--data", captions, "--out", retriever),
        ("index", "--retriever", retriever, "--image-features", store, "--out", index),
    ):
        done = run_command("visual-grounding", *command)
        assert done.returncode == 0, done.stderr
    done = run_command(
        "fairseq-interactive", tiny_translation / "bin", "--user-dir", user_dir, "--task", "grounded_translation",
        "--path", tmp_path / "translator/checkpoint_last.pt", "-s", "en", "-t", "de", "--image-features", store,
        "--retriever", retriever, "--image-index", index, "--images-per-sentence", 2, "--buffer-size", 5,
        "--input", tiny_translation / "text/test.en", *precision,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kinds = [line.split("-")[0] for line in done.stdout.splitlines()]
    assert kinds.count("I") == kinds.count("H") == 12


def test_translation_is_the_same_on_cuda_and_on_the_cpu(tiny_translation, trained, user_dir):
    found = []
    for place in (["--cpu"], []):
        done = run_command(
            "fairseq-generate", tiny_translation / "bin", "--user-dir", user_dir, "--task", "grounded_translation",
            "--path", trained, "--image-features", tiny_translation / "store", "--image-ids", tiny_translation / "ids",
            *place,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        rows = [line.split("\t") for line in done.stdout.splitlines() if line.startswith("H-")]
        found.append({name: (float(score), text) for name, score, text in rows})
    assert len(found[0]) == len(found[1]) == 12
    for name, (score, text) in found[0].items():
        assert found[1][name][1] == text and abs(found[1][name][0] - score) < 0.01
