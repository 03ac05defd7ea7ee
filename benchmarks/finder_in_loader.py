"""Does training wait where images are found for every mask anew? `--image-finder` against a table that is there.

  python benchmarks/finder_in_loader.py [--images 1000000 --batch-size 32 --method keyword]

`grounded_albert` trains with Adam on random lines, 16 images a line among as many captions as images. Once a finder
finds them in one worker process of the data loader, for each line as it is masked in that epoch; once they were found
beforehand, and the worker looks them up. Shown are the time of a step as a ratio, and which share of it training waited
for its batches. On a CPU the worker also takes a core from the model. Nothing is judged: where training waits, more
`--num-workers` help, up to the cores that there are.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from association import write_collection
from pairs import machine
from steps import Training, compare, parse, parser_of
from synthetic import WORDS, sentence_lengths, sentences, write_store

from visual_grounding.cli.main import main as command
from visual_grounding.text.tokenizer_bridge import TokenizerBridge


class Pretraining(Training):
    """One model on masked lines with images.

    Args:
        anew: whether they are found in the loader, else beforehand.
        folder: made by `write_data`.
        finder: the method and its flags.
        args: this benchmark's flags.
    """

    def __init__(self, anew: bool, folder: Path, finder: str, args: argparse.Namespace) -> None:
        flags = [str(folder / "text"), "--task", "grounded_lm", "--arch", "grounded_albert", "--optimizer", "adam"]
        flags += ["--criterion", "grounded_masked_lm", "--grounded-text-encoder", str(folder / "bert")]
        flags += ["--image-features", str(folder / "features"), "--num-workers", "1"]
        flags += ["--image-finder", finder, "--finder-tokenizer", str(folder / "bert")] if anew else []
        flags += [] if anew else ["--image-ids", str(folder / "ids")]
        super().__init__([*flags, *args.model_flags], args.device)
        self.task.load_dataset("train")
        dataset = self.task.dataset("train")
        order = np.argsort(dataset.num_tokens_vec(np.arange(args.sentences)), kind="stable")
        self.train_on(dataset, np.array_split(order, max(1, args.sentences // args.batch_size)))


def write_data(folder: Path, finder: str, args: argparse.Namespace) -> None:
    """A BERT of random numbers, random lines in its pieces, and a table of what is found for them once masked."""
    from fairseq.data import Dictionary, indexed_dataset
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{number}" for number in range(WORDS))]
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in words))
    BertTokenizerFast(str(folder / "words.txt")).save_pretrained(folder / "bert")
    sizes = {"hidden_size": args.size, "num_hidden_layers": args.layers, "num_attention_heads": args.size // 64 or 1,
             "intermediate_size": 4 * args.size}  # fmt: skip
    BertModel(BertConfig(vocab_size=len(words), **sizes)).save_pretrained(folder / "bert")
    (folder / "text").mkdir()
    symbols = TokenizerBridge(str(folder / "bert")).dictionary_lines()
    (folder / "text/dict.txt").write_text("".join(f"{line}\n" for line in symbols))
    dictionary = Dictionary.load(str(folder / "text/dict.txt"))
    lines = list(sentences(sentence_lengths(args.sentences), seed=3))
    builder = indexed_dataset.make_builder(str(folder / "text/train.bin"), "mmap", len(dictionary))
    for line in lines:
        builder.add_item(dictionary.encode_line(line, add_if_not_exist=False).long())
    builder.finalize(str(folder / "text/train.idx"))
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in lines))
    write_store(folder / "features", args.images, args.feature_size, np.arange(args.images))
    asked = ["--text", folder / "lines.txt", "--mask-prob", 0.15, "--mask-tokenizer", folder / "bert"]
    words_of_verb = ["retrieve", "--method", *finder.split(), *asked, "--out", folder / "ids/train"]
    if command([str(word) for word in words_of_verb]):
        raise SystemExit("nothing was found")


def main() -> int:
    """Measure."""
    parser = parser_of(__doc__, steps_on_cpu=10)
    parser.add_argument("--method", choices=("keyword", "scene", "object"), default="scene")
    parser.add_argument("--images", type=int, default=30_000, help="and captions")
    parser.add_argument("--batch-size", type=int, default=32, help="lines (the paper's)")
    parser.add_argument("--count", type=int, default=16, help="images of a line")
    parser.add_argument("--feature-size", type=int, default=1024)
    parser.add_argument("--size", type=int, default=384, help="of the encoders' states; ALBERT base has 768")
    parser.add_argument("--layers", type=int, default=6, help="of each encoder; ALBERT base has 12")
    args = parse(parser)
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_collection(folder, args.images)
        captions, vectors = f"--captions {folder}/captions.tsv", f"--word-vectors {folder}/vectors.txt"
        flags = {
            "keyword": captions,
            "scene": f"{captions} {vectors}",
            "object": f"--nouns {folder}/nouns.tsv {vectors} --tagger none",
        }
        finder = f"{args.method} {flags[args.method]} --image-features {folder}/features -n {args.count}"
        write_data(folder, finder, args)
        known, found = (Pretraining(anew, folder, finder, args) for anew in (False, True))
        ratio = compare(found, known, args.steps, args.pairs)
    print(f"{args.steps} steps with {args.method} in the loader against a table: {ratio}")
    for name, each in (("the finder's", found), ("the table's", known)):
        print(f"training waited for {name} batches {each.waited / each.total:.1%} of the time")
    return 0


if __name__ == "__main__":
    import visual_grounding  # noqa: F401 - registers task and architecture

    sys.exit(main())
