"""The real commands, in fresh processes, on a task whose last word only the image tells."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run_command, train_in_two_processes
from conftest import REPOSITORY, write_image_ids, write_store

from visual_grounding.storage.artefact import sha256_of_file
from visual_grounding.storage.checkpoints import load_checkpoint


def translate(folder: Path, user_dir: str, checkpoint: object, *more: object, **where: Path) -> dict[int, str]:
    """Hypotheses of `fairseq-generate` by sentence."""
    done = run_command(
        "fairseq-generate", folder / "bin", "--user-dir", user_dir, "--task", "grounded_translation",
        "--path", checkpoint,
        "--image-features", folder / "store", "--image-ids", folder / "ids", "--cpu", "--beam", 3, *more, **where,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines() if line.startswith("H-")]
    return {int(name[2:]): hypothesis for name, _, hypothesis in lines}


def test_training_learns_and_generation_translates_every_sentence(tiny_translation, learned, user_dir):
    references = (tiny_translation / "text/test.de").read_text(encoding="utf-8").splitlines()
    right = {}
    for order in ("congruent", "shuffled", "blank"):
        hypotheses = translate(tiny_translation, user_dir, learned, "--image-order", order)
        assert sorted(hypotheses) == list(range(12))
        pairs = [(hypotheses[s].split()[-1:], references[s].split()[-1:]) for s in range(12)]
        right[order] = sum(hypothesis == reference for hypothesis, reference in pairs)
    assert right["congruent"] >= 11
    assert right["blank"] < 11 and right["shuffled"] < 11


def test_generation_with_blank_images_does_not_depend_on_the_store(tiny_translation, trained, user_dir, tmp_path):
    other = write_store(tmp_path / "store", np.random.default_rng(9).normal(size=(24, 3, 6)) * 50)
    digest = sha256_of_file(other / "keys.txt")
    write_image_ids(tmp_path / "ids/test", np.full((12, 2), -1, np.int32), digest)
    (tmp_path / "bin").symlink_to(tiny_translation / "bin")
    blank = translate(tiny_translation, user_dir, trained, "--image-order", "blank")
    assert translate(tmp_path, user_dir, trained) == blank
    assert (
        translate(tiny_translation, user_dir, f"{trained}:{trained}", "--image-order", "blank") == blank
    )  # an ensemble


def test_plugin_loads_from_the_repository_by_its_name(tiny_translation, trained):
    assert len(translate(tiny_translation, "visual_grounding", trained, cwd=REPOSITORY)) == 12


def test_plugin_loads_when_the_package_was_imported_before(tiny_translation, trained, user_dir):
    script = "import visual_grounding, sys; from fairseq_cli.validate import cli_main; sys.exit(cli_main())"
    flags = [
        tiny_translation / "bin", "--user-dir", user_dir, "--task", "grounded_translation", "--path", trained, "--cpu",
        "--max-tokens", 100,
    ]  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script, *map(str, flags)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "valid on 'valid' subset" in done.stdout + done.stderr


def test_interactive_translates_typed_sentences_from_text_alone(tiny_translation, trained, user_dir):
    command = Path(sys.executable).with_name("fairseq-interactive")
    flags = [
        tiny_translation / "bin",
        "--user-dir",
        user_dir,
        "--task",
        "grounded_translation",
        "--path",
        trained,
        "--cpu",
    ]
    done = subprocess.run(
        [command, *map(str, flags), "-s", "en", "-t", "de"], input="a b bat\nc bat\n", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [line.split("\t")[0] for line in done.stdout.splitlines() if line.startswith("H-")] == ["H-0", "H-1"]
    assert done.stderr.count("have no images; they are translated from text alone") == 1


@pytest.mark.parametrize(
    "arch",
    [
        "gated_fusion_transformer",
        pytest.param("selective_attention_transformer", marks=pytest.mark.slow),
        pytest.param("text_only_transformer_tiny", marks=pytest.mark.slow),
    ],
)
def test_other_architectures_train_with_eval_bleu_and_resume(arch, tiny_translation, train_flags, tmp_path):
    twin = arch.startswith("text_only")
    images = ["--image-order", "congruent"] if twin else []
    flags = train_flags(tiny_translation, tmp_path, "--eval-bleu", "--eval-bleu-detok", "space", "--eval-bleu-args",
                        '{"beam": 2, "max_len_b": 10}', "--best-checkpoint-metric", "bleu",
                        "--maximize-best-checkpoint-metric", *images, arch=arch)  # fmt: skip
    if twin:  # the same task and data without images
        for flag in ("--image-features", "--image-ids"):
            place = flags.index(flag)
            del flags[place : place + 2]
    for epochs in (1, 2):
        done = run_command("fairseq-train", *flags, "--max-epoch", epochs)
        assert done.returncode == 0, done.stderr
    log = done.stdout + done.stderr
    assert "Loaded checkpoint" in log and "epoch 1" in log and "bleu" in log
    load_checkpoint(tmp_path / "checkpoint_best.pt")


@pytest.mark.slow
def test_hydra_trains_and_resumes(tiny_translation, user_dir, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/tiny.yaml").write_text(
        f"""# @package _group_
common: {{user_dir: {user_dir}, cpu: true, log_format: simple, no_progress_bar: true}}
checkpoint: {{save_dir: {tmp_path}/save}}
task:
  _name: grounded_translation
  data: {tiny_translation}/bin
  image_features: {tiny_translation}/store
  image_ids: {tiny_translation}/ids
dataset: {{max_tokens: 128}}
criterion: {{_name: label_smoothed_cross_entropy, label_smoothing: 0.1}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: fixed}}
optimization: {{lr: [0.01], max_epoch: 1}}
model:
  _name: visual_aware_transformer
  encoder_layers: 1
  decoder_layers: 1
  encoder_embed_dim: 16
  encoder_ffn_embed_dim: 16
  encoder_attention_heads: 2
  decoder_attention_heads: 2
""",
        encoding="utf-8",
    )
    for epochs in (1, 2):
        done = run_command("fairseq-hydra-train", "--config-dir", tmp_path / "conf", "--config-name", "tiny",
                           f"optimization.max_epoch={epochs}", f"hydra.run.dir={tmp_path}/run{epochs}")  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    log = "".join(path.read_text() for path in (tmp_path / "run2").glob("*.log"))
    assert "Loaded checkpoint" in log + done.stdout + done.stderr
    state = load_checkpoint(tmp_path / "save/checkpoint_last.pt")
    assert "encoder.fusion.output.weight" in state["model"]
    assert len(translate(tiny_translation, user_dir, tmp_path / "save/checkpoint_last.pt")) == 12


@pytest.mark.slow
def test_two_processes_train_and_resume(tiny_translation, train_flags, tmp_path):
    for epochs in (1, 2):
        logs = train_in_two_processes(*train_flags(tiny_translation, tmp_path / "save", "--max-epoch", epochs))
    assert "Loaded checkpoint" in logs[0]
    load_checkpoint(tmp_path / "save/checkpoint_last.pt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--image-features": None}, "--image-ids and --image-features belong .*--image-features isn't given"),
        ({"--image-ids": None}, "--image-features and --image-ids belong together, but --image-ids isn't given"),
        ({"--image-features": "{tmp}/nothing"}, "nothing should hold a feature store, but .* visual-grounding extract"),
        ({"--image-ids": "{tmp}/ids"}, "train.en-de has 48 sentences, but image ids in .*train have 47 rows"),
        ({"--images-per-sentence": "3"}, "--images-per-sentence is 3, but .* has 2 images a sentence"),
        ({"--arch": "transformer_tiny"}, "TransformerModel .* takes text alone. Leave both flags out"),
        ({"--arch": "text_only_transformer"}, "TextOnlyTransformerModel .* takes text alone. Leave both flags out"),
    ],
)  # fmt: skip
def test_training_on_wrong_input_says_so_alone_and_exits_with_2(
    change, message, tiny_translation, train_flags, tmp_path
):
    digest = sha256_of_file(tiny_translation / "store/keys.txt")
    write_image_ids(tmp_path / "ids/train", np.zeros((47, 1), np.int32), digest)
    write_image_ids(tmp_path / "ids/valid", np.zeros((12, 1), np.int32), digest)
    flags = train_flags(tiny_translation, tmp_path / "save")
    for flag, value in change.items():
        if flag in flags:
            place = flags.index(flag)
            del flags[place : place + 2]
        if value is not None:
            flags += [flag, value.format(tmp=tmp_path)]
    check_refusal(run_command("fairseq-train", *flags), message)


def check_refusal(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert done.returncode == 2, done.stderr
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr, done.stderr


def test_training_refuses_a_checkpoint_with_other_flags(tiny_translation, train_flags, trained, tmp_path):
    flags = train_flags(tiny_translation, tmp_path, "--restore-file", trained, "--visual-ffn-dim", 4, "--max-epoch", 3)
    message = r"missing \(encoder\.image_projection\.hidden.*made with other model flags, for .*: give those"
    check_refusal(run_command("fairseq-train", *flags), message)


@pytest.mark.parametrize(
    ("flag", "said"),
    [("--optimizer", "Give --optimizer, such as"), ("--max-tokens", "Give --batch-size, or --max-tokens")],
)
def test_training_names_a_flag_that_fairseq_needs(tiny_translation, train_flags, tmp_path, flag, said):
    flags = train_flags(tiny_translation, tmp_path)
    place = flags.index(flag)
    check_refusal(run_command("fairseq-train", *flags[:place], *flags[place + 2 :]), said)


def test_layers_of_a_model_trained_with_layerdrop_are_taken_out_in_generation(
    tiny_translation, train_flags, user_dir, tmp_path
):
    flags = train_flags(tiny_translation, tmp_path, "--encoder-layerdrop", 0.3, "--decoder-layerdrop", 0.3,
                        "--decoder-layers", 2, "--max-epoch", 1)  # fmt: skip
    flags[flags.index("--encoder-layers") + 1] = 3
    done = run_command("fairseq-train", *flags)
    assert done.returncode == 0, done.stderr
    checkpoint = tmp_path / "checkpoint_last.pt"
    pruned = ("--model-overrides", "{'encoder_layers_to_keep': '0,2', 'decoder_layers_to_keep': '1'}")
    assert sorted(translate(tiny_translation, user_dir, checkpoint, *pruned)) == list(range(12))


def test_generation_says_which_split_or_checkpoint_is_not_there(tiny_translation, trained, user_dir, tmp_path):
    torn = tmp_path / "torn.pt"
    torn.write_bytes(trained.read_bytes()[:5000])
    os.mkfifo(tmp_path / "pipe.pt")
    torch.save({"model": {"w": torch.ones(1)}, "cfg": Path("x")}, tmp_path / "classes.pt")
    cases = [
        *(
            (flags, "--path should name a file, but .*pipe.pt is a pipe or a device")
            for flags in (("--path", tmp_path / "pipe.pt"), (f"--path={trained}:{tmp_path / 'pipe.pt'}",))
        ),
        (
            ("--path", tmp_path / "classes.pt"),
            "classes.pt should hold tensors and settings only, but it also holds pathlib",
        ),
        (("--gen-subset", "tset"), f"{tiny_translation}/bin should hold binarised text of the split 'tset'"),
        (("--path", tmp_path / "gone.pt"), "--path names .*gone.pt, but there is no such file"),
        (("--path", torn), f"{torn} (should be|can't be read)"),
    ]
    for more, message in cases:
        done = run_command(
            "fairseq-generate", tiny_translation / "bin", "--user-dir", user_dir, "--task", "grounded_translation",
            "--path", trained, "--image-features", tiny_translation / "store",
            "--image-ids", tiny_translation / "ids", "--cpu", *more,
        )  # fmt: skip
        check_refusal(done, message)


def test_generation_refuses_a_store_of_another_size(tiny_translation, trained, user_dir, tmp_path):
    store = write_store(tmp_path / "store", np.ones((24, 3, 5)))
    done = run_command(
        "fairseq-generate", tiny_translation / "bin", "--user-dir", user_dir, "--task", "grounded_translation",
        "--path", trained, "--image-features", store, "--image-ids", tiny_translation / "ids", "--cpu",
    )  # fmt: skip
    check_refusal(done, f"image features of size 6, but {store} has size 5")


def test_training_on_nan_features_stops_at_the_image(tiny_translation, train_flags, tmp_path):
    """Found in a data loader's worker process, whose traceback fairseq would print."""
    features = np.ones((24, 3, 6))
    features[7] = np.nan
    store = write_store(tmp_path / "store", features)
    flags = train_flags(tiny_translation, tmp_path / "save", "--image-features", store)
    check_refusal(
        run_command("fairseq-train", *flags), r"store: the features of row 7 \(image7.jpg\) hold NaN or infinity"
    )
