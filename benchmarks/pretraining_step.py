"""What regions cost in pre-training: `vtlm` against fairseq's plain encoder on the same number of positions.

  python benchmarks/pretraining_step.py                      # on a CUDA device where there is one
  python benchmarks/pretraining_step.py --device cpu

Both train with Adam on pairs of sentences beside 36 positions more, with the same heads for 15 % of the words and of
those positions. `vtlm` reads regions of 1536 numbers, boxes and labels for them from a memory-mapped store, through the
dataset and the iterator that `fairseq-train` uses, in one worker process; the plain encoder gets text alone, and random
words there. Goal: at least 0.95 as fast, so a step takes at most 1/0.95 times as long.
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
from fairseq.data import Dictionary, iterators
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_encoder import TransformerEncoderBase
from pairs import alternate, exit_status, machine, verdict
from synthetic import sentence_lengths, write_ids, write_regions
from torch import Tensor, nn

PIECES = 10_000
LABELS = 600
CHOSEN = 0.15


class Lines(list):
    """Sentences as fairseq's datasets hold them."""

    def __init__(self, seed: int, sentences: int, eos: int) -> None:
        rng, lengths = np.random.default_rng(seed), sentence_lengths(sentences, seed)
        super().__init__(torch.from_numpy(np.append(rng.integers(4, PIECES, length), eos)) for length in lengths)
        self.sizes = lengths + 1


class PlainEncoder(nn.Module):
    """fairseq's encoder on words and as many random words as there are regions, with the heads of `vtlm`."""

    def __init__(self, vtlm: Any) -> None:
        super().__init__()
        cfg: TransformerConfig = vtlm.encoder.cfg
        dictionary, size = vtlm.encoder.dictionary, cfg.encoder.embed_dim
        words = nn.Embedding(len(dictionary), size, dictionary.pad())
        self.encoder = TransformerEncoderBase(cfg, dictionary, words)
        self.word_head = nn.Linear(size, len(dictionary))
        self.word_head.weight = words.weight
        self.label_head = nn.Linear(size, LABELS)

    def forward(self, tokens: Tensor, words: Tensor, regions: Tensor, **others: Tensor) -> tuple[Tensor, Tensor]:
        """tokens, words (B, L), regions (B, 1, R) -> logits of the chosen words and of the chosen positions behind."""
        more = torch.randint(4, PIECES, (len(tokens), regions.shape[2]), device=tokens.device)
        # Padding between two parts is as much work as padding at the end.
        states = self.encoder(torch.cat([tokens, more], dim=1))["encoder_out"][0].transpose(0, 1)
        length = tokens.shape[1]
        return self.word_head(states[:, :length][words]), self.label_head(states[:, length:][regions.squeeze(1)])


class Training:
    """One model in training.

    Args:
        ours: whether it is `vtlm`, with images; else the plain encoder.
        folder: made by `write_data`.
        args: this benchmark's flags.
        device: where it trains.
    """

    def __init__(self, ours: bool, folder: Path, args: argparse.Namespace, device: torch.device) -> None:
        flags = [
            str(folder), "--task", "visual_tlm", "--lang-pairs", "en-de", "--arch", "vtlm", "--criterion", "visual_tlm",
            "--optimizer", "adam", "--image-features", str(folder / "store"), "--image-ids", str(folder / "ids"),
            *args.model_flags,
        ]  # fmt: skip
        parsed = options.parse_args_and_arch(options.get_training_parser(), flags)
        cfg = convert_namespace_to_omegaconf(parsed)
        torch.manual_seed(1)
        task = tasks.setup_task(cfg.task)
        self.device, self.regions = device, task.image_store.num_regions
        model = task.build_model(cfg.model)
        self.ours = ours
        self.model = (model if ours else PlainEncoder(model)).to(device).train()
        self.criterion = task.build_criterion(cfg.criterion)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-4)
        task._load_pair = lambda *_: self._pair(task, args.sentences)
        task.load_dataset("train")
        dataset = task.dataset("train")
        self.dataset = dataset if ours else dataset.dataset.dataset  # without regions, and without images
        order = np.argsort(self.dataset.num_tokens_vec(np.arange(args.sentences)), kind="stable")
        batches = np.array_split(order, args.sentences // args.batch_size)
        self.batches = [batches[number] for number in np.random.default_rng(1).permutation(len(batches))]
        self.waited = self.total = 0.0

    def _pair(self, task: Any, sentences: int) -> tuple[Any, list[int]]:
        from visual_grounding.data.sentence_pairs import PairedText

        lines = [Lines(seed, sentences, task.dictionary.eos()) for seed in (3, 4)]
        return PairedText(*lines, (0, 1)), [sentences]

    def iterator(self, steps: int) -> Iterator[dict[str, Any]]:
        """Batches as `fairseq-train` gets them, from one worker process."""
        batches = (self.batches * (steps // len(self.batches) + 1))[:steps]
        epoch = iterators.EpochBatchIterator(self.dataset, self.dataset.collater, batches, num_workers=1)
        return epoch.next_epoch_itr(shuffle=False)

    def step(self, batch: dict[str, Any]) -> None:
        """Forward, loss, backward, update."""
        if not self.ours:
            places = (batch["nsentences"], 1, self.regions)
            chosen = torch.rand(places) < CHOSEN
            batch["label_targets"] = torch.where(chosen, torch.randint(LABELS, places), -1)
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


def write_data(folder: Path, args: argparse.Namespace) -> None:
    """A dictionary, regions, and the image of every pair."""
    dictionary = Dictionary()
    for piece in range(PIECES):
        dictionary.add_symbol(f"piece{piece}")
    for language in ("en", "de"):
        dictionary.save(str(folder / f"dict.{language}.txt"))
    digest = write_regions(folder / "store", args.images, args.regions, args.feature_size, LABELS)
    ids = np.random.default_rng(0).integers(0, args.images, (args.sentences, 1))
    write_ids(folder / "ids/train", ids, digest)


def main() -> int:
    """Measure, and say whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, help="in each half of a pair (default: 3 on a CPU, 40 on CUDA)")
    parser.add_argument("--batch-size", type=int, default=64, help="pairs of sentences (the paper's)")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--images", type=int, default=500, help="in the store")
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--feature-size", type=int, default=1536)
    parser.add_argument("--sentences", type=int, default=5_000)
    parser.add_argument("--model-flags", nargs=argparse.REMAINDER, default=[], help="flags of fairseq's, last: sizes")
    args = parser.parse_args()
    device = torch.device(args.device)
    args.steps = args.steps or (40 if device.type == "cuda" else 3)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), args)
        plain, ours = (Training(kind, Path(folder), args, device) for kind in (False, True))
        found = alternate(
            lambda: ours.seconds_of(args.steps),
            lambda: plain.seconds_of(args.steps),
            args.pairs,
            measure=lambda action: action(),
        )
    print(f"{args.steps} training steps of vtlm against a plain encoder on {device.type}: {found}")
    print(f"vtlm waited for its batches {ours.waited / ours.total:.1%} of the time")
    return exit_status([verdict("pre-training step, vtlm / plain encoder", found.median, 1 / 0.95)])


if __name__ == "__main__":
    import visual_grounding  # noqa: F401 - registers task and architecture

    sys.exit(main())
