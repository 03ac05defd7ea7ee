"""What images cost in a step of understanding, and what they cost in GS's cross-modal encoder.

  python benchmarks/understanding_step.py                      # on a CUDA device where there is one
  python benchmarks/understanding_step.py --device cpu

`visual_aware_bert` trains with Adam on pairs of sentences with 8 retrieved images each, from a memory-mapped store,
through the dataset and the iterator that `fairseq-train` uses, against the same encoder and head with text alone. Goal:
a step takes at most 1.05 times as long. Then forward and backward of the cross-modal encoder over a text's states, the
placeholder and the projected images, against transformers' own encoder over as many states, one of them padding, too.
Goal: at least 0.95 as fast, so at most 1/0.95 times as long.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pairs import alternate, exit_status, machine, seconds_of, verdict
from steps import Training, compare, parse, parser_of
from synthetic import sentence_lengths, write_ids, write_store

from visual_grounding.modules.grounded_encoder import GroundedEncoder
from visual_grounding.text.example_files import asked_of, write_examples
from visual_grounding.text.labelled_text import CLASSES, Example
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

WORDS = 10_000


class Tuning(Training):
    """One model on labelled pairs of sentences.

    Args:
        images: whether it looks at them.
        folder: made by `write_data`.
        args: this benchmark's flags.
    """

    def __init__(self, images: bool, folder: Path, args: argparse.Namespace) -> None:
        task = "grounded_sentence_prediction"
        flags = [str(folder / "examples"), "--task", task, "--arch", "visual_aware_bert", "--criterion", task]
        flags += ["--bert", str(folder / "bert"), "--optimizer", "adam"]
        if images:
            flags += ["--image-features", str(folder / "store"), "--image-ids", str(folder / "ids")]
        super().__init__([*flags, *args.model_flags], args.device)
        self.task.load_dataset("train")
        dataset = self.task.dataset("train")
        order = np.argsort(dataset.num_tokens_vec(np.arange(args.sentences)), kind="stable")
        self.train_on(dataset, np.array_split(order, max(1, args.sentences // args.batch_size)))


def write_data(folder: Path, args: argparse.Namespace) -> None:
    """A BERT of random numbers, pairs of random sentences, a store, and images of every pair."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(WORDS))]
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in words))
    BertTokenizerFast(str(folder / "words.txt")).save_pretrained(folder / "bert")
    sizes = {"hidden_size": args.size, "num_hidden_layers": args.layers, "num_attention_heads": args.size // 64 or 1,
             "intermediate_size": 4 * args.size}  # fmt: skip
    BertModel(BertConfig(vocab_size=len(words), **sizes)).save_pretrained(folder / "bert")
    rng = np.random.default_rng(0)
    sides = [
        [" ".join(f"w{word}" for word in rng.integers(0, WORDS, length)) for length in lengths]
        for lengths in (sentence_lengths(args.sentences, seed) for seed in (1, 2))
    ]
    examples = [Example(pair, (str(number % 3),)) for number, pair in enumerate(zip(*sides))]
    bridge = TokenizerBridge(str(folder / "bert"))
    asked = asked_of(CLASSES, examples, bridge)
    write_examples(folder / "examples", {"train": examples}, asked, bridge, "random", dict, lambda _: None)
    digest = write_store(folder / "store", args.images, args.feature_size, np.arange(args.images))
    write_ids(folder / "ids/train", rng.integers(0, args.images, (args.sentences, args.count)), digest)


def cross_modal(folder: Path, args: argparse.Namespace) -> Any:
    """Forward and backward of both encoders, as two functions."""
    from transformers import AutoModel

    choices = {"config": AutoModel.from_pretrained(folder / "bert").config.to_dict(), "opening": [0], "closes": True,
               "max_positions": 511}  # fmt: skip
    torch.manual_seed(1)
    ours = GroundedEncoder(choices, choices, args.feature_size, args.count).to(args.device).train()
    theirs = AutoModel.from_pretrained(folder / "bert").to(args.device).train()
    tokens = torch.randint(5, WORDS, (args.batch_size, args.pieces), device=args.device)
    states, absent = torch.randn(*tokens.shape, args.size, device=args.device), tokens < 0
    features = torch.randn(args.batch_size, args.count, 1, args.feature_size, device=args.device).half()
    visual = {"features": features, "padding_mask": torch.zeros_like(features[..., 0], dtype=torch.bool)}
    ours.text.forward = lambda _: (states, absent)  # of the cross-modal encoder alone: the text's states are there
    # States for both: neither looks words up, nor learns their table.
    plain = torch.randn(args.batch_size, args.pieces + 1 + args.count, args.size, device=args.device)
    seen = torch.ones(plain.shape[:2], dtype=torch.long, device=args.device)
    seen[:, args.pieces] = 0  # as the placeholder

    def step(model: Any, call: Any) -> None:
        model.zero_grad()
        call().sum().backward()

    return (
        lambda: step(ours, lambda: ours(tokens, visual).text),
        lambda: step(
            theirs, lambda: theirs(inputs_embeds=plain, attention_mask=seen).last_hidden_state[:, : args.pieces]
        ),
    )


def main() -> int:
    """Measure, and say whether the goals are met."""
    parser = parser_of(__doc__, steps_on_cpu=5)
    parser.add_argument("--batch-size", type=int, default=32, help="examples (the paper's)")
    parser.add_argument("--images", type=int, default=5_000, help="in the store")
    parser.add_argument("--count", type=int, default=8, help="images of an example")
    parser.add_argument("--feature-size", type=int, default=2048)
    parser.add_argument("--size", type=int, default=384, help="of the encoder's states; BERT base has 768")
    parser.add_argument("--layers", type=int, default=6, help="of the encoder; BERT base has 12")
    parser.add_argument("--pieces", type=int, default=64, help="of a text before the cross-modal encoder")
    args = parse(parser)
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, args)
        text, ours = (Tuning(images, folder, args) for images in (False, True))
        found = compare(ours, text, args.steps, args.pairs)
        both = cross_modal(folder, args)
        encoders = alternate(
            *both, args.pairs, lambda action: seconds_of(lambda: [action() for _ in range(args.steps)])
        )
    print(f"{args.steps} steps of visual_aware_bert with {args.count} images against text alone: {found}")
    print(f"it waited for its batches {ours.waited / ours.total:.1%} of the time")
    print(f"{args.steps} steps of the cross-modal encoder, {args.count} images, against a plain one: {encoders}")
    return exit_status(
        [
            verdict("understanding step, with images / without", found.median, 1.05),
            verdict("cross-modal encoder / a plain one on as many positions", encoders.median, 1 / 0.95),
        ]
    )


if __name__ == "__main__":
    import visual_grounding  # noqa: F401 - registers task and architecture

    sys.exit(main())
