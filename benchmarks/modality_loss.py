"""What the modality loss costs in a training step, and what regions cost in beam search.

  python benchmarks/modality_loss.py                      # on a CUDA device where there is one
  python benchmarks/modality_loss.py --device cpu

`--arch vtlm_translation` in its own size (6+6 layers, D 512) on one batch of random sentences with 36 regions each.
Goal: a step with the loss, learned weights in the last layer, takes at most 1.10 times as long as one without; that of
all layers is printed beside it, and so is what a sentence takes in beam search with regions and from text alone.

On a CPU the seconds are those of this process, which a busy machine stretches less than a clock's.
"""

import argparse
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import FairseqTask
from fairseq.utils import move_to_cuda
from pairs import alternate, exit_status, machine, seconds_of, verdict

from visual_grounding.criterions.label_smoothed_cross_entropy_with_modality_loss import (
    LabelSmoothedCrossEntropyWithModalityLossCriterion,
)

PIECES, REGIONS, FEATURE_SIZE = 10_000, 36, 1536


class Task(FairseqTask):
    """As much of a task as model, criterion and generator ask for."""

    image_feature_size = FEATURE_SIZE
    looks_apart: Any = None

    def __init__(self) -> None:
        super().__init__(Namespace(source_lang="en", target_lang="de", data=".", image_features="random"))
        self.dictionary = Dictionary()
        for piece in range(PIECES):
            self.dictionary.add_symbol(f"piece{piece}")

    @property
    def source_dictionary(self) -> Dictionary:
        """Of both sides."""
        return self.dictionary

    target_dictionary = source_dictionary


def batch_of(sentences: int, length: int) -> dict[str, Any]:
    """Random sentences of one length, each with a picture of 36 regions."""
    generator = torch.Generator().manual_seed(1)
    source, target = torch.randint(4, PIECES, (2, sentences, length), generator=generator)
    source[:, -1] = target[:, -1] = 2
    visual = {
        "features": torch.randn(sentences, 1, REGIONS, FEATURE_SIZE, generator=generator).half(),
        "boxes": torch.rand(sentences, 1, REGIONS, 4, generator=generator).sort(dim=3).values,
        "padding_mask": torch.zeros(sentences, 1, REGIONS, dtype=torch.bool),
    }
    shifted = torch.cat([target[:, -1:], target[:, :-1]], dim=1)
    lengths = torch.full((sentences,), length)
    net_input = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": shifted, "visual": visual}
    return {"net_input": net_input, "target": target, "ntokens": target.numel()}


class Steps:
    """A model that is trained by a criterion, some steps at a time."""

    def __init__(self, model: Any, criterion: Any, batch: dict[str, Any], steps: int) -> None:
        self.model, self.criterion, self.batch, self.steps = model, criterion, batch, steps
        self.optimizer = torch.optim.Adam([*model.parameters(), *criterion.parameters()], 1e-5)

    def __call__(self) -> None:
        """Forward, loss, backward, update."""
        self.model.train()
        for _ in range(self.steps):
            loss, size, _ = self.criterion(self.model, self.batch)
            self.optimizer.zero_grad()
            (loss / size).backward()
            self.optimizer.step()


def translate(model: Any, task: Task, batch: dict[str, Any], regions: bool, beam: int) -> None:
    """Beam search to the sources' length, whatever the untrained model would say."""
    model.eval()
    length = batch["target"].shape[1]
    generator = SequenceGenerator(
        [model], task.dictionary, beam_size=beam, max_len_a=0, max_len_b=length, min_len=length
    )
    given = {name: value for name, value in batch["net_input"].items() if name != "prev_output_tokens"}
    generator.generate([model], {"net_input": {**given, "visual": given["visual"] if regions else None}})


def process_seconds_of(action: Callable[[], object]) -> float:
    """Seconds that all threads of this process computed."""
    start = time.process_time()
    action()
    return time.process_time() - start


def main() -> int:
    """Measure, and say whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--arch", default="vtlm_translation")
    parser.add_argument("--sentences", type=int, help="in the batch (default: 32 on a CPU, 256 on CUDA)")
    parser.add_argument("--length", type=int, default=16, help="of every sentence, its end included")
    parser.add_argument("--steps", type=int, help="in each half of a pair (default: 1 on a CPU, 40 on CUDA)")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--beam", type=int, default=5)
    args = parser.parse_args()
    on_cuda = torch.device(args.device).type == "cuda"
    args.sentences = args.sentences or (256 if on_cuda else 32)
    args.steps = args.steps or (40 if on_cuda else 1)
    measure = seconds_of if on_cuda else process_seconds_of
    print(machine())

    torch.manual_seed(1)
    task, choices = Task(), Namespace(arch=args.arch)
    ARCH_CONFIG_REGISTRY[args.arch](choices)
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(choices, task).to(args.device)
    task.looks_apart = model.looks_apart
    batch = batch_of(args.sentences, args.length)
    batch = move_to_cuda(batch) if on_cuda else batch
    plain = Steps(model, LabelSmoothedCrossEntropyCriterion(task, False, 0.1), batch, args.steps)
    found = {}
    for layers in ("last", "all"):
        criterion = LabelSmoothedCrossEntropyWithModalityLossCriterion(task, False, 0.1, "learned", layers)
        ours = Steps(model, criterion.to(args.device).train(), batch, args.steps)
        found[layers] = alternate(ours, plain, args.pairs, measure)
        print(f"{args.steps} training steps with the modality loss ({layers}) against none: {found[layers]}")
    seeing, blind = (partial(translate, model, task, batch, regions, args.beam) for regions in (True, False))
    searched = alternate(seeing, blind, args.pairs, measure)
    print(f"beam search of {args.sentences} sentences with {REGIONS} regions against text alone: {searched}")
    return exit_status([verdict("training step, modality loss / none", found["last"].median, 1.10)])


if __name__ == "__main__":
    import visual_grounding  # noqa: F401 - registers the architecture

    sys.exit(main())
