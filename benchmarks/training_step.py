"""What images cost in a training step: `visual_aware_transformer` against `text_only_transformer`, its twin.

  python benchmarks/training_step.py                      # on a CUDA device where there is one
  python benchmarks/training_step.py --device cpu

Both train with label-smoothed cross-entropy and Adam on the same batches of the same sentences; the one with images
reads N = 8 images of F = 2048 numbers a sentence from a memory-mapped store, through the datasets and the iterator that
`fairseq-train` uses, in one worker process. Goals: a step takes at most 1.10 (CPU) or 1.05 (CUDA) times as long; and
training waits for its next batch at most 2 % of the time.
"""

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import options, tasks, utils
from fairseq.data import Dictionary, LanguagePairDataset, iterators
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from pairs import alternate, exit_status, machine, verdict
from synthetic import sentence_lengths, write_ids, write_store

ARCHITECTURES = {"text": "text_only_transformer", "images": "visual_aware_transformer"}
PIECES = 10_000


def write_data(folder: Path, images: int, size: int, sentences: int, count: int) -> None:
    """A dictionary, a store, and the ids of every sentence."""
    dictionary = Dictionary()
    for piece in range(PIECES):
        dictionary.add_symbol(f"piece{piece}")
    for language in ("en", "de"):
        dictionary.save(str(folder / f"dict.{language}.txt"))
    ids = np.random.default_rng(0).integers(0, images, (sentences, count))
    write_ids(folder / "ids/train", ids, write_store(folder / "store", images, size, np.unique(ids)))


class Training:
    """One model in training, as `fairseq-train` would build it.

    Args:
        kind: "text" or "images".
        folder: made by `write_data`.
        args: this benchmark's flags.
        device: where it trains.
    """

    def __init__(self, kind: str, folder: Path, args: argparse.Namespace, device: torch.device) -> None:
        more = ["--image-features", str(folder / "store"), "--image-ids", str(folder / "ids")]
        flags = [
            str(folder), "--task", "grounded_translation", "-s", "en", "-t", "de", "--arch", ARCHITECTURES[kind],
            "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--optimizer", "adam",
            *(more if kind == "images" else []), *args.model_flags,
        ]  # fmt: skip
        parsed = options.parse_args_and_arch(options.get_training_parser(), flags)
        cfg = convert_namespace_to_omegaconf(parsed)
        torch.manual_seed(1)
        task = tasks.setup_task(cfg.task)
        self.device = device
        self.model = task.build_model(cfg.model).to(device).train()
        self.criterion = task.build_criterion(cfg.criterion)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 5e-4)
        self.text = self._text(task, args.sentences)
        self.dataset = task.images.add(self.text, "train", "train.en-de")
        batches = self.dataset.batch_by_size(self.dataset.ordered_indices(), max_tokens=args.max_tokens)
        # The same batches for both; full ones only, in one random order.
        full = [batch for batch in batches if len(batch) * 2 > max(map(len, batches))]
        self.batches = [full[number] for number in np.random.default_rng(1).permutation(len(full))]
        self.waited = self.total = 0.0

    def _text(self, task: Any, sentences: int) -> LanguagePairDataset:
        rng = np.random.default_rng(2)
        sides = []
        for seed, dictionary in ((3, task.source_dictionary), (4, task.target_dictionary)):
            lengths = sentence_lengths(sentences, seed)
            numbers = [torch.from_numpy(rng.integers(4, PIECES, length)) for length in lengths]
            lines = [torch.cat([line, torch.tensor([dictionary.eos()])]) for line in numbers]
            sides += [lines, lengths + 1, dictionary]
        return LanguagePairDataset(*sides, shuffle=False)

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


def main() -> int:
    """Measure, and say whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, help="in each half of a pair (default: 4 on a CPU, 40 on CUDA)")
    parser.add_argument("--max-tokens", type=int, help="in a batch (default: 1024 on a CPU, 4096 on CUDA)")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--images", type=int, default=10_000, help="in the store")
    parser.add_argument("--feature-size", type=int, default=2048)
    parser.add_argument("--images-per-sentence", type=int, default=8)
    parser.add_argument("--sentences", type=int, default=5_000)
    parser.add_argument("--model-flags", nargs=argparse.REMAINDER, default=[], help="flags of fairseq's, last: sizes")
    args = parser.parse_args()
    device = torch.device(args.device)
    args.steps = args.steps or (40 if device.type == "cuda" else 4)
    args.max_tokens = args.max_tokens or (4096 if device.type == "cuda" else 1024)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), args.images, args.feature_size, args.sentences, args.images_per_sentence)
        text, images = (Training(kind, Path(folder), args, device) for kind in ARCHITECTURES)
        found = alternate(
            lambda: images.seconds_of(args.steps),
            lambda: text.seconds_of(args.steps),
            args.pairs,
            measure=lambda action: action(),
        )
    print(f"{args.steps} training steps with images against text alone on {device.type}: {found}")
    met = verdict("training step, images / text", found.median, 1.05 if device.type == "cuda" else 1.10)
    waiting = verdict("time waiting for a batch / all time", images.waited / images.total, 0.02)
    return exit_status([met, waiting])


if __name__ == "__main__":
    import visual_grounding  # noqa: F401 - registers task and architecture

    sys.exit(main())
