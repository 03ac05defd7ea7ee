"""Sentences -> image ids: which images go with each line of a text.

  visual-grounding retrieve --method dense --retriever retriever --index index --text train.en --out ids/train
  visual-grounding retrieve --method keyword --captions captions.tsv --image-features features/f30k \\
      --text train.en --out ids/train
  visual-grounding retrieve --method paired --image-features features/f30k --keys train.keys --out ids/train

dense: the nearest images in a retriever's space, best first, as exactly as the index allows. keyword: the images whose
captions share most of the sentence's topic words (Zhang et al. 2020); needs no retriever. paired: the image that the
corpus itself has for each sentence. An empty line gets no image. Make one table a split; training reads them with
--image-ids ids.
"""

import argparse
from pathlib import Path

NEEDED = {
    "dense": ("retriever", "index", "text"),
    "keyword": ("captions", "image_features", "text"),
    "paired": ("image_features", "keys"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--method", choices=NEEDED, required=True, help="how images are found")
    parser.add_argument(
        "--text", type=Path, metavar="FILE", help="one sentence a line; paired: only checked for its length"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="table of image ids to write")
    found = parser.add_argument_group("dense and keyword")
    found.add_argument("-n", "--images-per-sentence", type=int, default=8, metavar="N", help="(default: %(default)s)")
    found.add_argument(
        "--exclude-paired", type=Path, metavar="FILE", help="one image key a line, which that sentence must not get"
    )
    found.add_argument(
        "--shard-size", type=int, default=8192, help="sentences between two save points (default: %(default)s)"
    )
    dense = parser.add_argument_group("dense")
    dense.add_argument("--retriever", type=Path, metavar="DIR", help="made by `export`")
    dense.add_argument("--index", type=Path, metavar="DIR", help="made by `index` with the same retriever")
    dense.add_argument(
        "--probes", type=int, metavar="N", help="of an ivf or pq index: lists to search (default: a 32nd, at least 8)"
    )
    dense.add_argument("--device", help="cpu, cuda, cuda:1 … (default: cuda where there is one)")
    dense.add_argument("--batch-size", type=int, default=256, help="sentences at a time (default: %(default)s)")
    keyword = parser.add_argument_group("keyword")
    keyword.add_argument("--captions", type=Path, metavar="TSV", help="key<TAB>caption lines of the collection")
    keyword.add_argument(
        "--stop-words", type=Path, metavar="FILE", help="words that are no topic, one a line (default: English ones)"
    )
    stored = parser.add_argument_group("keyword and paired")
    stored.add_argument("--image-features", type=Path, metavar="DIR", help="feature store")
    paired = parser.add_argument_group("paired")
    paired.add_argument("--keys", type=Path, metavar="FILE", help="one image key a line, empty for none")
    paired.add_argument("--strict", action="store_true", help="a key that the store doesn't have is an error")


def run(args: argparse.Namespace) -> None:
    """Retrieve, and say once what is noteworthy."""
    from ..errors import InputError
    from ..retrieval.image_ids import ImageIds

    missing = [f"--{name.replace('_', '-')}" for name in NEEDED[args.method] if getattr(args, name) is None]
    if missing:
        raise InputError(f"--method {args.method} also needs {' and '.join(missing)}.")
    {"dense": _dense, "keyword": _keyword, "paired": _paired}[args.method](args)
    table = ImageIds(args.out)
    print(f"{args.out}: {len(table)} sentences, {table.ids.shape[1]} images each\n{table.signature}")
    if table.recall is not None:
        print(f"{table.recall:.1%} of the {table.ids.shape[1]} nearest images were found, on a sample of sentences.")


def _dense(args: argparse.Namespace) -> None:
    from ..devices import choose_device
    from ..retrieval.dense import retrieve_dense
    from ..retrieval.index import Index
    from ..retrieval.retriever import Retriever
    from ..text.lines import read_lines

    sentences = read_lines(args.text)
    retriever = Retriever.load(args.retriever, str(choose_device(args.device)))
    exclude = None if args.exclude_paired is None else read_lines(args.exclude_paired)
    index = Index(args.index)
    counts = retrieve_dense(
        retriever,
        index,
        sentences,
        args.out,
        args.images_per_sentence,
        exclude,
        args.batch_size,
        args.shard_size,
        args.probes,
    )
    _warn(counts["empty"], len(sentences), "are empty; they have no image.")
    _warn(counts["truncated"], len(sentences), f"were cut at {retriever.max_tokens} tokens to find their images.")
    _warn(
        counts["short"],
        len(sentences),
        f"have fewer than {args.images_per_sentence} images: "
        + ("more --probes would find more." if index.looks_into_some(args.probes) else "the collection has no more."),
    )
    unknown = counts.get("unknown_excluded", 0)
    _warn(unknown, len(sentences), "have a key in --exclude-paired that the collection doesn't have.")


def _keyword(args: argparse.Namespace) -> None:
    from ..features.store import FeatureStore
    from ..retrieval.keyword import retrieve_keyword
    from ..text.lines import read_lines
    from ..text.stop_words import ENGLISH, read_stop_words

    sentences = read_lines(args.text)
    counts = retrieve_keyword(
        args.captions,
        FeatureStore(args.image_features),
        sentences,
        args.out,
        args.images_per_sentence,
        None if args.exclude_paired is None else read_lines(args.exclude_paired),
        ENGLISH if args.stop_words is None else read_stop_words(args.stop_words),
        args.shard_size,
    )
    _warn(counts["empty"], len(sentences), "are empty; they have no image.")
    _warn(counts["no_topic"], len(sentences), "have no word that a caption has as its topic; they have no image.")
    _warn(
        counts["short"],
        len(sentences),
        f"have fewer than {args.images_per_sentence} images: no more captions share a topic word.",
    )
    unknown = counts.get("unknown_excluded", 0)
    _warn(unknown, len(sentences), "have a key in --exclude-paired that the collection doesn't have.")
    _warn(
        counts["unknown_captions"],
        counts["captions"],
        f"are of images that {args.image_features} doesn't have; they aren't used.",
        "captions",
    )


def _paired(args: argparse.Namespace) -> None:
    from ..features.store import FeatureStore
    from ..retrieval.paired import retrieve_paired
    from ..text.lines import read_lines

    keys = read_lines(args.keys)
    sentences = None if args.text is None else read_lines(args.text)
    counts = retrieve_paired(FeatureStore(args.image_features), keys, args.out, sentences, args.strict)
    without = counts["empty"] + counts["unknown"]
    _warn(without, len(keys), f"have no image; {counts['unknown']} of them have a key that the store doesn't have.")


def _warn(count: int, total: int, what: str, of: str = "sentences") -> None:
    import sys

    from ..storage.ranks import this_rank

    if count and this_rank().leads:
        print(f"warning: {count} of {total} {of} ({count / total:.1%}) {what}", file=sys.stderr)
