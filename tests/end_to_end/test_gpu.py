"""On a CUDA device: `pytest -m gpu`. Skipped elsewhere."""

import pytest
import torch
from conftest import run_command

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
