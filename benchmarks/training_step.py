"""What images cost in a training step: `visual_aware_transformer` against `text_only_transformer`, its twin.

  python benchmarks/training_step.py                      # on a CUDA device where there is one
  python benchmarks/training_step.py --device cpu

Both train with label-smoothed cross-entropy and Adam on the same batches of the same sentences; the one with images
reads N = 8 images of F = 2048 numbers a sentence from a memory-mapped store, through the datasets and the iterator that
`fairseq-train` uses, in one worker process. Goals: a step takes at most 1.10 (CPU) or 1.05 (CUDA) times as long; and
training waits for its next batch at most 2 % of the time.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from fairseq.data import LanguagePairDataset
from pairs import exit_status, machine, verdict
from steps import Lines, Training, compare, parse, parser_of
from synthetic import write_dictionaries, write_ids, write_store

ARCHITECTURES = {"text": "text_only_transformer", "images": "visual_aware_transformer"}
PIECES = 10_000


def write_data(folder: Path, images: int, size: int, sentences: int, count: int) -> None:
    """A dictionary, a store, and the ids of every sentence."""
    write_dictionaries(folder, PIECES)
    ids = np.random.default_rng(0).integers(0, images, (sentences, count))
    write_ids(folder / "ids/train", ids, write_store(folder / "store", images, size, np.unique(ids)))


class Translation(Training):
    """One translation model in training.

    Args:
        kind: "text" or "images".
        folder: made by `write_data`.
        args: this benchmark's flags.
    """

    def __init__(self, kind: str, folder: Path, args: argparse.Namespace) -> None:
        more = ["--image-features", str(folder / "store"), "--image-ids", str(folder / "ids")]
        flags = [
            str(folder), "--task", "grounded_translation", "-s", "en", "-t", "de", "--arch", ARCHITECTURES[kind],
            "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--optimizer", "adam",
            *(more if kind == "images" else []), *args.model_flags,
        ]  # fmt: skip
        super().__init__(flags, args.device)
        sides = []
        for seed, dictionary in ((3, self.task.source_dictionary), (4, self.task.target_dictionary)):
            lines = Lines(seed, args.sentences, PIECES, dictionary.eos())
            sides += [lines, lines.sizes, dictionary]
        text = LanguagePairDataset(*sides, shuffle=False)
        dataset = self.task.images.add(text, "train", "train.en-de")
        batches = dataset.batch_by_size(dataset.ordered_indices(), max_tokens=args.max_tokens)
        # The same batches for both, full ones only.
        self.train_on(dataset, [batch for batch in batches if len(batch) * 2 > max(map(len, batches))])


def main() -> int:
    """Measure, and say whether the goals are met."""
    parser = parser_of(__doc__, steps_on_cpu=4)
    parser.add_argument("--max-tokens", type=int, help="in a batch (default: 1024 on a CPU, 4096 on CUDA)")
    parser.add_argument("--images", type=int, default=10_000, help="in the store")
    parser.add_argument("--feature-size", type=int, default=2048)
    parser.add_argument("--images-per-sentence", type=int, default=8)
    args = parse(parser)
    on_cuda = args.device.type == "cuda"
    args.max_tokens = args.max_tokens or (4096 if on_cuda else 1024)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), args.images, args.feature_size, args.sentences, args.images_per_sentence)
        text, images = (Translation(kind, Path(folder), args) for kind in ARCHITECTURES)
        found = compare(images, text, args.steps, args.pairs)
    print(f"{args.steps} training steps with images against text alone on {args.device.type}: {found}")
    met = verdict("training step, images / text", found.median, 1.05 if on_cuda else 1.10)
    waiting = verdict("time waiting for a batch / all time", images.waited / images.total, 0.02)
    return exit_status([met, waiting])


if __name__ == "__main__":
    import visual_grounding  # noqa: F401 - registers task and architecture

    sys.exit(main())
