"""Text -> vokens: an image for every piece of every line; continues where it was interrupted.

  visual-grounding vokenize --retriever vokenizer --index index --text wiki.txt --out vokens/train
  zcat wiki.gz | visual-grounding vokenize --retriever vokenizer --index index --text - --out vokens/train
  visual-grounding vokenize --method random --tokenizer bert-base-uncased --image-features features --text … --out …
  visual-grounding vokenize --check --text wiki.txt --out vokens/train

matching: the image most similar to each piece in its sentence. sentence: that of its sentence, the same for all its
pieces. term-frequency: drawn by how much of an image's captions the piece is. random: any. The first two need a matcher
(trained with --arch token_image_matching, exported) and an index made with it; the others a tokenizer and the images.

The output has vokens and pieces side by side, and says which fairseq-preprocess command makes training data of them.
Text may be of any length: memory holds a part of it. Several processes share the work under torchrun --no-python.
"""

import argparse
from pathlib import Path
from typing import Any

from ..errors import InputError, check_at_least_one, check_workers, warn

LANGUAGE = "en"
METHODS = ("matching", "sentence", "term-frequency", "random")
_NEEDED = {  # flags of each method that others don't read
    "matching": ("retriever", "index"),
    "sentence": ("retriever", "index"),
    "term-frequency": ("tokenizer", "image_features", "captions"),
    "random": ("tokenizer", "image_features"),
}
_OF_MATCHER = ("batch_tokens", "precision", "scores", "device")
_OWN = {
    "matching": _OF_MATCHER,
    "sentence": _OF_MATCHER,
    "term-frequency": ("temperature", "seed"),
    "random": ("seed",),
}
_OF_METHODS = {name for names in (*_NEEDED.values(), *_OWN.values()) for name in names}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--method", choices=METHODS, default="matching", help="(default: %(default)s)")
    parser.add_argument(
        "--text",
        type=Path,
        nargs="+",
        action="extend",
        required=True,
        metavar="FILE",
        help="raw text, UTF-8, one after the other; also .gz and .zst; - is standard input",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="vokens to write")
    matcher = parser.add_argument_group("--method matching, sentence")
    matcher.add_argument("--retriever", type=Path, metavar="DIR", help="a matcher, made by `export`")
    matcher.add_argument("--index", type=Path, metavar="DIR", help="the images in its space, made by `index`")
    matcher.add_argument("--batch-tokens", type=int, metavar="N", help="pieces at a time (default: by the device)")
    matcher.add_argument(
        "--precision",
        choices=("float32", "bfloat16", "float16"),
        help="of the encoder (default: bfloat16 on CUDA, float32 on a CPU)",
    )
    matcher.add_argument("--scores", action="store_true", help="keep how similar pieces and images are, too")
    matcher.add_argument("--device", help="cpu, cuda, cuda:1 … (default: cuda where there is one)")
    others = parser.add_argument_group("--method term-frequency, random")
    others.add_argument("--tokenizer", metavar="NAME|FOLDER", help="a model's name on the hub, or a folder")
    others.add_argument("--image-features", type=Path, metavar="DIR", help="feature store, for its images")
    others.add_argument(
        "--captions", type=Path, metavar="FILE", help="term-frequency: all text of an image, key<TAB>text"
    )
    others.add_argument("--temperature", type=float, help="term-frequency: γ (default: 0.01)")
    others.add_argument("--seed", type=int, help="of what is drawn (default: 1)")
    candidates = parser.add_argument_group("candidates")
    candidates.add_argument(
        "--candidates", type=int, metavar="N", help="images that may be vokens: the first N (default: all)"
    )
    candidates.add_argument("--candidate-seed", type=int, metavar="SEED", help="draw the N at random instead")
    candidates.add_argument("--candidate-list", type=Path, metavar="FILE", help="or those with these keys, one a line")
    parser.add_argument("--language", default=LANGUAGE, help="of the text, for its sentences (default: %(default)s)")
    parser.add_argument(
        "--max-pieces",
        type=int,
        metavar="N",
        help="pieces that are read at a time; longer sentences are in several parts (default: 126, or what the "
        "tokenizer's model has positions for)",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="processes that cut text (default: 0, on CUDA 4)")
    parser.add_argument(
        "--shard-size", type=int, metavar="LINES", help="lines between two save points, at most (default: 8192)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="measure a little, estimate time and disk, write nothing"
    )
    parser.add_argument("--check", action="store_true", help="check a finished --out against --text, and write nothing")


def run(args: argparse.Namespace) -> None:
    """Vokenize, and say what is in the output and what comes next.

    Raises:
        InputError: as `vokenize`, or flags that don't belong together.
    """
    from ..storage.ranks import this_rank
    from ..vokenization.stream import SHARD_LINES, vokenize

    if args.check and args.dry_run:
        raise InputError("--check and --dry-run exclude each other, but both are given.")
    if args.check:
        _check_only_text(args)
        _check(args)
        return
    _check_flags(args)
    if (args.workers or 0) < 0:
        raise InputError(f"workers should be 0 or more, but is {args.workers}.", "workers")
    check_workers(args.workers or 0)
    vokenizer, cutter, workers = _open(args)
    shard_lines = SHARD_LINES if args.shard_size is None else args.shard_size
    check_at_least_one(shard_size=shard_lines)
    if args.dry_run:
        from ..vokenization.estimate import estimate

        print(estimate(vokenizer, cutter, args.text, args.out, args.scores, shard_lines).describe())
        return
    vokens = vokenize(vokenizer, cutter, args.text, args.out, args.scores, shard_lines, workers)
    counts = vokens.counts
    print(f"{args.out}: {vokens.lines} lines, {vokens.tokens} pieces, {vokens.size} vokens\n{vokens.signature}")
    if this_rank().leads:
        _warn(counts, vokens)
    print(f"Training data of the pieces: {vokens.binarise}")


def _check_flags(args: argparse.Namespace) -> None:
    """Refuse flags of another method, and name those that are missing."""
    method = args.method
    missing = [name for name in _NEEDED[method] if getattr(args, name) is None]
    if missing:
        raise InputError(f"--method {method} also needs {' and '.join(map(_flag, missing))}.")
    unread = _given(args, _OF_METHODS - {*_NEEDED[method], *_OWN[method]})
    if unread:
        raise InputError(f"--method {method} doesn't read {' and '.join(map(_flag, unread))}. Leave it out.")


def _given(args: argparse.Namespace, names: set[str]) -> list[str]:
    values = {name: getattr(args, name) for name in sorted(names)}
    return [name for name, value in values.items() if value is not None and value is not False]  # 0 is given, too


def _check_only_text(args: argparse.Namespace) -> None:
    """Refuse what `--check` wouldn't look at: it knows the output and the text."""
    others = {"candidates", "candidate_seed", "candidate_list", "max_pieces", "shard_size", "workers"}
    chosen = {
        name for name, default in (("method", METHODS[0]), ("language", LANGUAGE)) if getattr(args, name) != default
    }
    unread = _given(args, _OF_METHODS | others | chosen)
    if unread:
        raise InputError(f"--check doesn't read {' and '.join(map(_flag, unread))}. Leave it out.")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _open(args: argparse.Namespace) -> tuple[Any, Any, int]:
    """The vokenizer, what cuts the text, and how many processes cut."""
    from ..vokenization.candidates import choose_candidates, present_images

    chosen = (args.candidates, args.candidate_seed, args.candidate_list)
    if args.method in ("matching", "sentence"):
        return _open_matcher(args, chosen)
    from ..features.store import FeatureStore
    from ..text.captions import read_captions
    from ..vokenization.baselines import TEMPERATURE, RandomVokenizer, TermFrequencyVokenizer

    store = FeatureStore(args.image_features)
    candidates = choose_candidates(store, present_images(store), *chosen)
    cutter = _cutter(args, args.tokenizer)
    seed = 1 if args.seed is None else args.seed
    if args.method == "random":
        return RandomVokenizer(candidates, seed), cutter, args.workers or 0
    captions = read_captions(args.captions)
    temperature = TEMPERATURE if args.temperature is None else args.temperature
    vokenizer = TermFrequencyVokenizer(candidates, captions, cutter.bridge, temperature, seed)
    _warn_of_undescribed(len(candidates.keys) - vokenizer.described, len(candidates.keys))
    return vokenizer, cutter, args.workers or 0


def _warn_of_undescribed(count: int, candidates: int) -> None:

    from ..shares import warn_of
    from ..storage.ranks import this_rank

    if this_rank().leads:
        for warning in warn_of(count, candidates, "have no captions: pieces get them by chance alone.", "candidates"):
            warn(warning)


def _open_matcher(args: argparse.Namespace, chosen: tuple[Any, ...]) -> tuple[Any, Any, int]:
    from ..devices import choose_device
    from ..retrieval.index import Index
    from ..retrieval.retriever import Retriever
    from ..retrieval.retriever_folder import TEXT_ENCODER
    from ..retrieval.token_matcher import TokenMatcherRetriever
    from ..vokenization.candidates import choose_candidates
    from ..vokenization.vokenizer import SentenceVokenizer, TokenVokenizer

    device = choose_device(args.device)
    retriever = Retriever.load(args.retriever, str(device))
    if not isinstance(retriever, TokenMatcherRetriever):
        raise InputError(
            f"--method {args.method} needs a retriever that --arch token_image_matching trained, token_matcher, "
            f"but {args.retriever} is of kind {retriever.kind}."
        )
    index = Index(args.index)
    candidates = choose_candidates(index, index.embeddings.any(axis=1), *chosen)
    precision = args.precision or ("bfloat16" if device.type == "cuda" else "float32")
    kind = TokenVokenizer if args.method == "matching" else SentenceVokenizer
    vokenizer = kind(retriever, index, candidates, args.batch_tokens, precision)
    workers = (4 if device.type == "cuda" else 0) if args.workers is None else args.workers
    return vokenizer, _cutter(args, str(args.retriever / TEXT_ENCODER)), workers


def _cutter(args: argparse.Namespace, tokenizer: str) -> Any:
    from ..text.tokenizer_bridge import TokenizerBridge
    from ..vokenization.cutting import WINDOW_PIECES, Cutter

    window = args.max_pieces
    if window is None:
        window = min(WINDOW_PIECES, TokenizerBridge(tokenizer).max_pieces)
    return Cutter(tokenizer, args.language, window)


def _warn(counts: dict[str, int], vokens: Any) -> None:

    from ..shares import warn_of

    for warning in (
        *warn_of(counts.get("empty", 0), vokens.lines, "are empty; they have no vokens.", "lines"),
        *warn_of(counts.get("unknown", 0), vokens.tokens, "are unknown to the tokenizer.", "pieces"),
        *warn_of(
            counts.get("windowed", 0), counts.get("sentences", 0), "are long, and were read in parts.", "sentences"
        ),
    ):
        warn(warning)


def _check(args: argparse.Namespace) -> None:
    from ..vokenization.check import check_vokens

    checked = check_vokens(args.out, args.text)
    print(f"{args.out}: sound. {checked}")
