"""What is frozen stays as it is under every optimizer that fairseq wraps around another."""

from typing import Any

import pytest
import torch
from fairseq import optim, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from torch import nn

from visual_grounding.tasks.image_text_matching import ImageTextMatchingTask

PRECISIONS: dict[str, tuple[Any, torch.dtype, list[str]]] = {
    "float32": (None, torch.float32, []),
    "fp16": (optim.FP16Optimizer, torch.float16, ["--fp16"]),
    "fp16, not flat": (optim.FP16Optimizer, torch.float16, ["--fp16", "--fp16-no-flatten-grads"]),
    "bf16": (optim.FP16Optimizer, torch.bfloat16, ["--bf16"]),
    "memory-efficient fp16": (optim.MemoryEfficientFP16Optimizer, torch.float16, ["--memory-efficient-fp16"]),
    "amp": (optim.AMPOptimizer, torch.float32, ["--amp"]),
}
LEARNING_RATE = 0.125


def build_optimizer(model: nn.Module, precision: str) -> Any:
    """As fairseq's trainer does; --fp16 wants a CUDA device only for the place of its copy."""
    wrapper, _, flags = PRECISIONS[precision]
    parser = options.get_training_parser()
    flags = ["data", "--optimizer", "adam", "--lr", str(LEARNING_RATE), "--weight-decay", "0.5", *flags]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [*flags, "--arch", "transformer"]))
    parameters = list(model.parameters())
    return wrapper.build_optimizer(cfg, parameters) if wrapper else optim.build_optimizer(cfg.optimizer, parameters)


def step(optimizer: Any, model: nn.Module) -> None:
    """One update, with a gradient of 1 in everything that learns."""
    optimizer.zero_grad()
    for weight in model.parameters():
        if weight.requires_grad:
            weight.grad = torch.ones_like(weight)
    optimizer._needs_sync = True  # as after `backward`
    if hasattr(optimizer, "_multiply_factor"):
        optimizer._multiply_factor = 1.0  # gradients that were never scaled
    task = ImageTextMatchingTask.__new__(ImageTextMatchingTask)
    task.optimizer_step(optimizer, model=model, update_num=0)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.filterwarnings("ignore")  # GradScaler's, without a GPU
def test_frozen_weights_do_not_decay_and_learn_afterwards(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    torch.manual_seed(0)
    learning, frozen = nn.Linear(3, 2), nn.Linear(2, 5)
    model = nn.Sequential(learning, frozen).to(PRECISIONS[precision][1])
    optimizer = build_optimizer(model, precision)
    frozen.requires_grad_(False)  # after the optimizer has been built, as in an epoch's beginning
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    for _ in range(3):
        step(optimizer, model)
    for name, weight in frozen.state_dict().items():
        assert torch.equal(weight, before[f"1.{name}"]), name
    # Adam's first steps on a constant gradient of 1 are one learning rate each, after the weight has decayed.
    expected = before["0.weight"].float()
    for _ in range(3):
        expected = expected * (1 - LEARNING_RATE * 0.5) - LEARNING_RATE
    torch.testing.assert_close(learning.weight.float(), expected, rtol=0, atol=2e-2)
    frozen.requires_grad_(True)
    step(optimizer, model)
    moved = frozen.weight.float() - before["1.weight"].float() * (1 - LEARNING_RATE * 0.5)
    assert moved.max() < -LEARNING_RATE / 2, "it doesn't learn from where it was"
