"""Anonymous memory of `vokenize` with a text and with one ten times as long.

  python benchmarks/vokenization_memory.py [--lines 50000] [--times 10]

Goal: RssAnon, at its highest, differs by at most 5 %: a text is never held. The command runs as a user runs it, with a
small random matcher, so that its own memory hides little. Exits with 1 where it is missed.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from pairs import exit_status, in_time, machine, verdict
from retrieval_memory import peak_rss_anon
from retrieval_world import positive, write_store
from vokenization import small_bert

from visual_grounding.features.store import FeatureStore
from visual_grounding.modules.token_image_matcher import TokenImageMatcher, TokenImageMatcherConfig
from visual_grounding.retrieval.index import build_index
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.retrieval.token_matcher import save_token_matcher
from visual_grounding.text.pretrained_tokenizer import PretrainedTokenizer

GOAL = 1.05


def write_matcher(folder: Path, image_size: int) -> None:
    """A matcher with an encoder of one small layer of random numbers."""
    from transformers import BertConfig, BertModel

    tokenizer = PretrainedTokenizer(str(small_bert()))
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    encoder = BertModel(BertConfig(vocab_size=len(tokenizer.tokenizer), **sizes))
    config = TokenImageMatcherConfig(layers=1, image_feature_size=image_size, joint_size=16)
    save_token_matcher(folder, TokenImageMatcher(config, encoder), tokenizer, "benchmark")


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--lines",
        type=positive,
        default=50_000,
        help="of the shorter text, several times what is held at a time (default: %(default)s)",
    )
    parser.add_argument("--times", type=positive, default=10, help="the longer one's length (default: %(default)s)")
    args = parser.parse_args()
    print(machine())
    peaks = []
    with tempfile.TemporaryDirectory(prefix="vokenization-memory-") as name:
        folder = Path(name)
        write_matcher(folder / "retriever", 8)
        store = FeatureStore(write_store(folder / "store", 1000, 8))
        build_index(Retriever.load(folder / "retriever"), store, folder / "index")
        for times in in_time((1, args.times)):
            text = folder / f"text{times}"
            with open(text, "w", encoding="utf-8") as file:
                for number in range(10**6, 10**6 + args.lines * times):  # as many digits in each
                    file.write(f"A line of some words, the {number}th of them all. It has another sentence, too!\n")
            flags = ["--retriever", folder / "retriever", "--index", folder / "index", "--device", "cpu"]
            peaks.append(peak_rss_anon(["vokenize", *flags, "--text", text, "--out", folder / f"out{times}"]))
            print(f"{args.lines * times} lines: RssAnon {peaks[-1] / 1e6:.1f} MB", flush=True)
    if len(peaks) < 2:
        return 1
    return exit_status([verdict("memory, long by short", peaks[1] / peaks[0], GOAL)])


if __name__ == "__main__":
    sys.exit(main())
