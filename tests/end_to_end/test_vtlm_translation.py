"""Translation from a pre-trained stream with the real commands, in fresh processes."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import run_command, train_in_two_processes

from visual_grounding.features.store import FeatureStore
from visual_grounding.modules.joint_embedding import JointEmbedding, JointEmbeddingConfig
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.index import build_index
from visual_grounding.retrieval.joint_embedding import save_joint_embedding
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.storage.checkpoints import load_checkpoint
from visual_grounding.text.words import Vocabulary, WordTokenizer

SIZES = [
    flag
    for side in ("encoder", "decoder")
    for flag in (f"--{side}-layers", 2, f"--{side}-embed-dim", 32, f"--{side}-ffn-embed-dim", 64,
                 f"--{side}-attention-heads", 2)
] + ["--max-source-positions", 64, "--max-target-positions", 64]  # fmt: skip


def images_of(folder: Path) -> list[object]:
    return ["--image-features", folder / "store", "--image-ids", folder / "ids"]


def flags_of(folder: Path, user_dir: str, save_dir: Path, *more: object) -> list[object]:
    """Of `fairseq-train`, in the sizes of the `pretrained_stream`."""
    return [
        folder / "bin", "--user-dir", user_dir, "--task", "grounded_translation", "-s", "en", "-t", "de",
        "--arch", "vtlm_translation_tiny", *SIZES, "--criterion", "label_smoothed_cross_entropy", "--optimizer", "adam",
        "--lr", 0.005, "--batch-size", 16, "--cpu", "--seed", 1, "--num-workers", 0, "--save-dir", save_dir,
        "--no-epoch-checkpoints", "--no-progress-bar", "--log-format", "simple", *more,
    ]  # fmt: skip


def translate(folder: Path, user_dir: str, checkpoint: object, *more: object) -> dict[int, str]:
    """Hypotheses of `fairseq-generate` by sentence."""
    done = run_command(
        "fairseq-generate", folder / "bin", "--user-dir", user_dir, "--task", "grounded_translation", "--path",
        checkpoint, "-s", "en", "-t", "de", "--cpu", "--beam", 3, "--num-workers", 0, *more,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines() if line.startswith("H-")]
    return {int(name[2:]): hypothesis for name, _, hypothesis in lines}


@pytest.fixture(scope="module")
def translator(tiny_pairs, pretrained_stream, user_dir, tmp_path_factory) -> Path:
    """A checkpoint that started from pre-training; its log is beside it, and what it started from is gone."""
    folder = tmp_path_factory.mktemp("translator")
    start = shutil.copy(pretrained_stream, folder / "pretrained.pt")
    bleu = ["--eval-bleu", "--eval-bleu-detok", "space", "--eval-bleu-args", '{"beam": 2, "max_len_b": 10}',
            "--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric", "--max-epoch", 2]  # fmt: skip
    more = [*images_of(tiny_pairs), "--visual-pretrained", start, *bleu]
    done = run_command("fairseq-train", *flags_of(tiny_pairs, user_dir, folder, *more))
    assert done.returncode == 0, done.stderr
    (folder / "log").write_text(done.stdout + done.stderr)
    start.unlink()
    return folder / "checkpoint_last.pt"


def test_translation_starts_from_pretraining_and_needs_it_no_more(tiny_pairs, translator, user_dir):
    log = (translator.parent / "log").read_text()
    assert "started from" in log and "started anew: nothing" in log and "left out: " in log and "bleu" in log
    ensemble = f"{translator}:{translator}"
    hypotheses = translate(tiny_pairs, user_dir, ensemble, *images_of(tiny_pairs), "--print-alignment")
    assert sorted(hypotheses) == list(range(12))
    assert load_checkpoint(translator)["cfg"]["model"].visual_pretrained is None


@pytest.mark.slow
def test_training_resumes_without_what_it_started_from(tiny_pairs, translator, user_dir, tmp_path):
    shutil.copy(translator, tmp_path / "checkpoint_last.pt")
    more = [*images_of(tiny_pairs), "--visual-pretrained", translator.parent / "pretrained.pt", "--max-epoch", 3]
    done = run_command("fairseq-train", *flags_of(tiny_pairs, user_dir, tmp_path, *more))
    assert done.returncode == 0, done.stderr
    assert "Loaded checkpoint" in done.stdout + done.stderr and "begin training epoch 3" in done.stdout + done.stderr


@pytest.mark.slow
def test_translation_learns_from_regions_what_text_does_not_say(tiny_pairs, pretrained_stream, user_dir, tmp_path):
    """A bat is of two kinds; from the same checkpoint NMT and MMT, and MMT with the images of others or none."""
    start = ["--visual-pretrained", pretrained_stream, "--max-epoch", 30, "--dropout", 0, "--attention-dropout", 0]
    right = {}
    references = (tiny_pairs / "text/test.de").read_text(encoding="utf-8").splitlines()
    for kind, images in (("mmt", images_of(tiny_pairs)), ("nmt", [])):
        done = run_command("fairseq-train", *flags_of(tiny_pairs, user_dir, tmp_path / kind, *images, *start))
        assert done.returncode == 0, done.stderr
        orders = ("congruent", "shuffled", "blank") if images else ("congruent",)
        for order in orders:
            more = [*images, *(["--image-order", order] if images else [])]
            found = translate(tiny_pairs, user_dir, tmp_path / kind / "checkpoint_last.pt", *more)
            hits = [found[s].split()[-1:] == references[s].split()[-1:] for s in range(12)]
            right[f"{kind} {order}"] = sum(hits)
    assert right["mmt congruent"] >= 11
    assert max(right["mmt shuffled"], right["mmt blank"], right["nmt congruent"]) < right["mmt congruent"], right


@pytest.mark.slow
def test_typed_sentences_get_the_images_that_a_retriever_finds(tiny_pairs, translator, user_dir, tmp_path):
    torch.manual_seed(2)
    store = FeatureStore(tiny_pairs / "store")
    words = [f"word{number}" for number in range(8)]
    config = JointEmbeddingConfig(
        "bag", "weldon", store.feature_size, joint_size=8, vocabulary_size=4 + len(words), text_embed_size=5
    )
    retriever, index = tmp_path / "retriever", tmp_path / "index"
    save_joint_embedding(retriever, JointEmbedding(config), WordTokenizer(Vocabulary(words)), "random")
    build_index(Retriever.load(retriever), store, index)
    (tmp_path / "typed").write_text("word7 word1\n\nword3\n")
    done = run_command(
        "visual-grounding", "retrieve", "--method", "dense", "--retriever", retriever, "--index", index, "-n", 1,
        "--text", tmp_path / "typed", "--out", tmp_path / "ids",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = run_command(
        "fairseq-interactive", tiny_pairs / "bin", "--user-dir", user_dir, "--task", "grounded_translation", "--path",
        translator, "--cpu", "-s", "en", "-t", "de", "--image-features", tiny_pairs / "store", "--retriever", retriever,
        "--image-index", index, "--input", tmp_path / "typed",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    keys = list(store.keys())
    rows = ImageIds(tmp_path / "ids").ids[:, 0]
    shown = re.findall(r"^I-(\d)\t?([^\s:]*)", done.stdout, re.MULTILINE)
    assert shown == [(str(line), "" if row < 0 else keys[row]) for line, row in enumerate(rows)]
    assert (rows >= 0).tolist() == [True, False, True] and len(re.findall(r"^H-\d", done.stdout, re.MULTILINE)) == 3


@pytest.mark.slow
def test_typed_sentences_get_images_and_the_translations_of_generation(tiny_pairs, translator, user_dir, tmp_path):
    keys = list(FeatureStore(tiny_pairs / "store").keys())
    (tmp_path / "captions.tsv").write_text("".join(f"{key}\tword{row} bat\n" for row, key in enumerate(keys)))
    words = ["keyword", "--captions", tmp_path / "captions.tsv", "--image-features", tiny_pairs / "store", "-n", 1]
    command = [
        Path(sys.executable).with_name("fairseq-interactive"), tiny_pairs / "bin", "--user-dir", user_dir, "--task",
        "grounded_translation", "--path", translator, "--cpu", "-s", "en", "-t", "de", "--beam", 3, "--image-features",
        tiny_pairs / "store", "--image-finder", shlex.join(map(str, words)),
    ]  # fmt: skip
    typed = "a b bat word7\nword3 dog\n\n"
    done = subprocess.run([str(each) for each in command], input=typed, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^I-(\d)\t?(\w*)", done.stdout, re.MULTILINE) == [("0", "image7"), ("1", "image3"), ("2", "")]
    assert len(re.findall(r"^H-\d", done.stdout, re.MULTILINE)) == 3


@pytest.mark.slow
def test_two_processes_start_from_pretraining(tiny_pairs, pretrained_stream, user_dir, tmp_path):
    more = [*images_of(tiny_pairs), "--visual-pretrained", pretrained_stream, "--max-epoch", 1]
    outputs = train_in_two_processes(*flags_of(tiny_pairs, user_dir, tmp_path, *more))
    assert all("started from" in output for output in outputs[:1])


@pytest.mark.slow
def test_hydra_trains_in_bfloat16(tiny_pairs, pretrained_stream, user_dir, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/tiny.yaml").write_text(
        f"""# @package _group_
common: {{user_dir: {user_dir}, cpu: true, bf16: true, log_format: simple, no_progress_bar: true}}
checkpoint: {{save_dir: {tmp_path}/save, no_epoch_checkpoints: true}}
task:
  _name: grounded_translation
  data: {tiny_pairs}/bin
  source_lang: en
  target_lang: de
  image_features: {tiny_pairs}/store
  image_ids: {tiny_pairs}/ids
dataset: {{batch_size: 16, num_workers: 0}}
optimization: {{max_epoch: 1, lr: [0.005]}}
optimizer: {{_name: adam, adam_betas: '(0.9, 0.98)'}}
lr_scheduler: {{_name: fixed}}
criterion: {{_name: label_smoothed_cross_entropy, label_smoothing: 0.1}}
model:
  _name: vtlm_translation_tiny
  visual_pretrained: {pretrained_stream}
  max_source_positions: 64
  max_target_positions: 64
  encoder_layers: 2
  decoder_layers: 2
  encoder_embed_dim: 32
  decoder_embed_dim: 32
  encoder_ffn_embed_dim: 64
  decoder_ffn_embed_dim: 64
  encoder_attention_heads: 2
  decoder_attention_heads: 2
"""
    )
    done = run_command("fairseq-hydra-train", "--config-dir", tmp_path / "conf", "--config-name", "tiny", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    load_checkpoint(tmp_path / "save/checkpoint_last.pt")
