"""What `revokenize` costs beside tokenizing the text with both tokenizers.

  python benchmarks/revokenization.py --text wiki.valid.txt wiki.test.txt --tokenizer bert-base-uncased

Vokens of a BERT's pieces (`--tokenizer`, a name or a folder) to those of a byte-level BPE of 30,000 pieces, which is
learned from the text first. Both sides have their tokenizers loaded and use the same threads; `revokenize` checks the
text, reads the vokens, cuts with both, and writes the artefact to the disk. Tokenizing is what transformers does, of
1,000 lines at a time, numbers alone.

Goal: at most 1.3 times as long, in the processor's seconds and on the clock. A busy machine disturbs the clock: with
`--busy` only the processor's seconds count.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pairs import alternate, exit_status, machine, verdict

GOAL = 1.3
PIECES, VOKENS, LINES = 30_000, 50_000, 1000


def learn_bytes(lines: Sequence[str], folder: Path) -> Path:
    """A tokenizer such as GPT-2's, learned from lines; the same for the same lines."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import GPT2Tokenizer

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=PIECES, initial_alphabet=alphabet, show_progress=False)
    learner.train_from_iterator(lines, trainer)
    model = json.loads(learner.to_str())["model"]
    vocabulary = {**model["vocab"], "<|endoftext|>": len(model["vocab"])}
    GPT2Tokenizer(vocab=vocabulary, merges=[tuple(pair) for pair in model["merges"]]).save_pretrained(folder)
    return folder


def write_vokens(folder: Path, lines: Sequence[str], tokenizer: str) -> Any:
    """Vokens of a text, drawn at random, without what would find them."""
    from visual_grounding.text.tokenizer_bridge import TokenizerBridge
    from visual_grounding.vokenization.baselines import RandomVokenizer
    from visual_grounding.vokenization.candidates import Candidates
    from visual_grounding.vokenization.cutting import Cutter
    from visual_grounding.vokenization.stream import vokenize

    text = folder.with_name("text")
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    candidates = Candidates(np.arange(VOKENS), [f"{number}.jpg" for number in range(VOKENS)])
    window = min(126, TokenizerBridge(tokenizer).max_pieces)
    return vokenize(RandomVokenizer(candidates), Cutter(tokenizer, window=window), [text], folder)


def tokenize(tokenizers: Sequence[Any], lines: Sequence[str]) -> int:
    """The numbers of all pieces of both tokenizers; how many there are."""
    pieces = 0
    for tokenizer in tokenizers:
        for start in range(0, len(lines), LINES):
            found = tokenizer(
                lines[start : start + LINES],
                add_special_tokens=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )
            pieces += sum(map(len, found["input_ids"]))
    return pieces


def processor_seconds_of(action: Callable[[], object]) -> float:
    """Seconds that all threads of this process computed."""
    start = time.process_time()
    action()
    return time.process_time() - start


def main() -> int:
    """Measure, and say whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument("--tokenizer", required=True, metavar="NAME|FOLDER", help="the one of the vokens")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the tokenizers (default: all cores)")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--busy", action="store_true", help="the machine does something else: the clock doesn't count")
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)  # read when the first text is cut
    from visual_grounding.storage.lines import read_lines
    from visual_grounding.vokenization.revokenization import Revokenizer, revokenize

    print(f"{machine()}; {args.threads} threads of tokenizers; load {os.getloadavg()[0]:.1f}")
    lines = [line for path in args.text for line in read_lines(path)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        other = learn_bytes(lines, folder / "bytes")
        source = write_vokens(folder / "vokens", lines, args.tokenizer)
        revokenizer = Revokenizer(source, str(other))

        def ours() -> None:
            shutil.rmtree(folder / "out", ignore_errors=True)
            revokenize(revokenizer, [folder / "text"], folder / "out")

        def theirs() -> None:
            tokenize([revokenizer.own.tokenizer, revokenizer.other.tokenizer], lines)

        pieces = tokenize([revokenizer.own.tokenizer, revokenizer.other.tokenizer], lines)
        verdicts = []
        for what, measure in (("processor", processor_seconds_of), ("clock", None)):
            found = alternate(ours, theirs, args.pairs, *([measure] if measure else []))
            print(f"revokenizing {len(lines)} lines, {pieces} pieces, against tokenizing ({what}): {found}")
            if measure or not args.busy:
                verdicts.append(verdict(f"revokenize / tokenize, {what}", found.median, GOAL))
    return exit_status(verdicts)


if __name__ == "__main__":
    sys.exit(main())
