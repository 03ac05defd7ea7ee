"""What regions cost in pre-training: `vtlm` against fairseq's plain encoder on the same number of positions.

  python benchmarks/pretraining_step.py                      # on a CUDA device where there is one
  python benchmarks/pretraining_step.py --device cpu

Both train with Adam on pairs of sentences beside 36 positions more, with the same heads for 15 % of the words and of
those positions. `vtlm` reads regions of 1536 numbers, boxes and labels for them from a memory-mapped store, through the
dataset and the iterator that `fairseq-train` uses, in one worker process; the plain encoder gets text alone, and random
words there. Goal: at least 0.95 as fast, so a step takes at most 1/0.95 times as long.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_encoder import TransformerEncoderBase
from pairs import exit_status, machine, verdict
from steps import Lines, Training, compare, parse, parser_of
from synthetic import write_dictionaries, write_ids, write_regions
from torch import Tensor, nn

from visual_grounding.data.sentence_pairs import PairedText

PIECES = 10_000
LABELS = 600
CHOSEN = 0.15


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


class Pretraining(Training):
    """One model in pre-training.

    Args:
        ours: whether it is `vtlm`, with images; else the plain encoder.
        folder: made by `write_data`.
        args: this benchmark's flags.
    """

    def __init__(self, ours: bool, folder: Path, args: argparse.Namespace) -> None:
        flags = [
            str(folder), "--task", "visual_tlm", "--lang-pairs", "en-de", "--arch", "vtlm", "--criterion", "visual_tlm",
            "--optimizer", "adam", "--image-features", str(folder / "store"), "--image-ids", str(folder / "ids"),
            *args.model_flags,
        ]  # fmt: skip
        self.ours = ours
        super().__init__(flags, args.device)
        self.regions = self.task.image_store.num_regions
        lines = [Lines(seed, args.sentences, PIECES, self.task.dictionary.eos()) for seed in (3, 4)]
        self.task._load_pair = lambda *_: (PairedText(*lines, (0, 1)), [args.sentences])
        self.task.load_dataset("train")
        dataset = self.task.dataset("train")
        dataset = dataset if ours else dataset.dataset.dataset  # without regions, and without images
        order = np.argsort(dataset.num_tokens_vec(np.arange(args.sentences)), kind="stable")
        self.train_on(dataset, np.array_split(order, args.sentences // args.batch_size))

    def build_model(self, cfg: Any) -> Any:
        """`vtlm`, or the plain encoder in its sizes."""
        model = super().build_model(cfg)
        return model if self.ours else PlainEncoder(model)

    def step(self, batch: dict[str, Any]) -> None:
        """As of any training; for the plain encoder positions are chosen in place of regions."""
        if not self.ours:
            places = (batch["nsentences"], 1, self.regions)
            chosen = torch.rand(places) < CHOSEN
            batch["label_targets"] = torch.where(chosen, torch.randint(LABELS, places), -1)
        super().step(batch)


def write_data(folder: Path, args: argparse.Namespace) -> None:
    """A dictionary, regions, and the image of every pair."""
    write_dictionaries(folder, PIECES)
    digest = write_regions(folder / "store", args.images, args.regions, args.feature_size, LABELS)
    ids = np.random.default_rng(0).integers(0, args.images, (args.sentences, 1))
    write_ids(folder / "ids/train", ids, digest)


def main() -> int:
    """Measure, and say whether the goal is met."""
    parser = parser_of(__doc__, steps_on_cpu=3)
    parser.add_argument("--batch-size", type=int, default=64, help="pairs of sentences (the paper's)")
    parser.add_argument("--images", type=int, default=500, help="in the store")
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--feature-size", type=int, default=1536)
    args = parse(parser)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), args)
        plain, ours = (Pretraining(kind, Path(folder), args) for kind in (False, True))
        found = compare(ours, plain, args.steps, args.pairs)
    print(f"{args.steps} training steps of vtlm against a plain encoder on {args.device.type}: {found}")
    print(f"vtlm waited for its batches {ours.waited / ours.total:.1%} of the time")
    return exit_status([verdict("pre-training step, vtlm / plain encoder", found.median, 1 / 0.95)])


if __name__ == "__main__":
    import visual_grounding  # noqa: F401 - registers task and architecture

    sys.exit(main())
