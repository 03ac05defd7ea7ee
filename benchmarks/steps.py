"""What the benchmarks of training share: a model in training as by `fairseq-train`, some steps at a time."""

import argparse
import gc
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from fairseq import options, tasks, utils
from fairseq.data import iterators
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from pairs import Comparison, alternate
from synthetic import sentence_lengths


class Lines(list):
    """Random sentences of realistic lengths, as fairseq's datasets hold them.

    Args:
        seed: another one, other sentences.
        sentences: how many.
        pieces: of how many the vocabulary consists, beside fairseq's four.
        eos: the number of what ends a sentence.
    """

    def __init__(self, seed: int, sentences: int, pieces: int, eos: int) -> None:
        rng, lengths = np.random.default_rng(seed), sentence_lengths(sentences, seed)
        super().__init__(torch.from_numpy(np.append(rng.integers(4, pieces, length), eos)) for length in lengths)
        self.sizes = lengths + 1


class Training:
    """One model in training, as `fairseq-train` would build it.

    Who derives from it calls `train_on`, once, before the first step.

    Args:
        flags: of `fairseq-train`.
        device: where it trains.
    """

    dataset: Any

    def __init__(self, flags: Sequence[str], device: torch.device) -> None:
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), list(flags)))
        torch.manual_seed(1)
        self.device = device
        self.task = tasks.setup_task(cfg.task)
        self.model = self.build_model(cfg.model).to(device).train()
        self.criterion = self.task.build_criterion(cfg.criterion)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-4)
        self.waited = self.total = 0.0

    def build_model(self, cfg: Any) -> Any:
        """The one of `--arch`."""
        return self.task.build_model(cfg)

    def train_on(self, dataset: Any, batches: Sequence[Any]) -> None:
        """Train on these batches of a dataset, in a random order that is always the same."""
        self.dataset = dataset
        self.batches = [batches[number] for number in np.random.default_rng(1).permutation(len(batches))]

    def iterator(self, steps: int) -> Iterator[dict[str, Any]]:
        """Batches as `fairseq-train` gets them, from one worker process."""
        batches = (self.batches * (steps // len(self.batches) + 1))[:steps]
        epoch = iterators.EpochBatchIterator(self.dataset, self.dataset.collater, batches, num_workers=1)
        return epoch.next_epoch_itr(shuffle=False)

    def step(self, batch: dict[str, Any]) -> None:
        """Forward, loss, backward, update."""
        batch = utils.move_to_cuda(batch) if self.device.type == "cuda" else batch
        loss, sample_size, _ = self.criterion(self.model, batch)
        self.optimizer.zero_grad()
        (loss / sample_size).backward()
        self.optimizer.step()

    def seconds_of(self, steps: int) -> float:
        """Time of some steps, without what the worker process takes to start."""
        batches = self.iterator(steps + 1)
        self.step(next(batches))
        self._finish()
        start = time.perf_counter()
        for _ in range(steps):
            asked = time.perf_counter()
            batch = next(batches)
            self.waited += time.perf_counter() - asked
            self.step(batch)
        self._finish()
        passed = time.perf_counter() - start
        self.total += passed
        del batches
        gc.collect()  # a worker process that is left over would be copied into the next
        return passed

    def _finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def compare(ours: Training, theirs: Training, steps: int, pairs: int) -> Comparison:
    """Some steps of both in turn."""
    return alternate(
        lambda: ours.seconds_of(steps), lambda: theirs.seconds_of(steps), pairs, measure=lambda action: action()
    )


def parser_of(description: str | None, steps_on_cpu: int) -> argparse.ArgumentParser:
    """The flags of a benchmark of training: where, how much, and fairseq's own, last; others are added to it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    steps = f"in each half of a pair (default: {steps_on_cpu} on a CPU, 40 on CUDA)"
    parser.add_argument("--steps", type=int, help=steps)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=5_000)
    parser.add_argument("--model-flags", nargs=argparse.REMAINDER, default=[], help="flags of fairseq's, last: sizes")
    parser.set_defaults(steps_on_cpu=steps_on_cpu)
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The flags given, `device` as torch's and `steps` a number."""
    args = parser.parse_args()
    args.device = torch.device(args.device)
    args.steps = args.steps or (40 if args.device.type == "cuda" else args.steps_on_cpu)
    return args
