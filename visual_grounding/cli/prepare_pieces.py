"""Text -> a pretrained model's pieces, and the dict.txt that numbers them, for fairseq-preprocess.

  visual-grounding prepare pieces --tokenizer bert-base-uncased --text train.en train.de valid.en valid.de --out pieces
  fairseq-preprocess --source-lang en --target-lang de --trainpref pieces/train --validpref pieces/valid \\
      --srcdict pieces/dict.txt --tgtdict pieces/dict.txt --destdir bin

Every file of --text comes back under its own name, a line for each of its lines. A later run may add files to the
folder with the same tokenizer and --max-pieces. Text in one language takes --only-source instead of --tgtdict.
`--bpe pretrained_pieces --bpe-tokenizer bert-base-uncased` makes fairseq-generate and fairseq-interactive write text
again.
"""

import argparse
from pathlib import Path
from typing import Any

from ..errors import InputError, warn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument(
        "--tokenizer",
        required=True,
        metavar="NAME|FOLDER",
        help="of the pretrained model: its name on the hub, or a folder",
    )
    parser.add_argument(
        "--text", type=Path, nargs="+", action="extend", required=True, metavar="FILE", help="raw text, UTF-8"
    )
    parser.add_argument(
        "--max-pieces",
        type=int,
        metavar="N",
        help="cut lines after N pieces (default: cut nothing, and say how many lines the model has no positions for)",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")


def run(args: argparse.Namespace) -> None:
    """Write the folder, and say what is in it.

    Raises:
        InputError: a choice that can't be, texts that can't be used, or an output that can't be written, or that holds
            pieces of another making that would stay.
    """
    from collections.abc import Iterable, Iterator

    from ..progress import progress_bar
    from ..storage.artefact import FORMAT_VERSION, META, json_text
    from ..storage.file_set import check_place
    from ..storage.lines import iterate_lines
    from ..storage.signature import signature
    from ..storage.text_files import write_text_files
    from ..text.piece_files import PieceFile
    from ..text.tokenizer_bridge import TokenizerBridge
    from ..text.words import DICTIONARY

    if args.max_pieces is not None and args.max_pieces < 1:
        raise InputError(f"--max-pieces should be at least 1, but is {args.max_pieces}.")
    _check_texts(args.text, args.out, (DICTIONARY, META))
    bridge = TokenizerBridge(args.tokenizer)
    texts = {path.name: PieceFile(path) for path in args.text}
    made = signature("pieces", tokenizer=bridge.sha256[:8], cut=args.max_pieces or "no")
    check_place(args.out, [*texts, META, DICTIONARY], DICTIONARY, META, "pieces")
    _kept(args.out, set(texts), made, bridge.sha256)
    total = sum(1 for path in args.text for _ in iterate_lines(path))

    def description() -> Iterator[str]:
        """Read when all lines have been written, so the counts are there, and the folder is locked."""
        files = _kept(args.out, set(texts), made, bridge.sha256) | {
            name: {"lines": text.lines, "pieces": text.pieces, "text_sha256": text.sha256}
            for name, text in texts.items()
        }
        meta = {"format": "pieces", "version": FORMAT_VERSION, "signature": made, "files": files}
        yield from json_text({**meta, "tokenizer_sha256": bridge.sha256}).splitlines()

    with progress_bar(total, 0, "lines") as bar:
        lines: dict[str, Iterable[str]] = {
            name: text.cut_lines(bridge, args.max_pieces, bar.update) for name, text in texts.items()
        }
        write_text_files(
            args.out,
            {**lines, META: description(), DICTIONARY: bridge.dictionary_lines()},
            last=DICTIONARY,
            beside=lambda: _kept(args.out, set(texts), made, bridge.sha256),
        )
    for name, text in texts.items():
        print(f"{name}: {text.lines} lines, {text.pieces} pieces, {text.unknown} of them unknown")
    print(f"dict.txt: {len(bridge)} symbols, fairseq's own included\n{made}")
    _warn(list(texts.values()), args.max_pieces, bridge.max_pieces)


def _check_texts(paths: list[Path], out: Path, taken: tuple[str, ...]) -> None:
    from ..storage.lines import check_read_again

    check_read_again(*paths)
    seen: dict[str, Path] = {}
    for path in paths:
        if path.name in seen:
            raise InputError(
                f"files of --text should have names of their own, as they lie in one folder afterwards, but "
                f"{seen[path.name]} and {path} have the same. Give them to two commands with an --out each."
            )
        if path.name in taken:
            raise InputError(f"--text {path} should be called otherwise: {out / path.name} has a meaning of its own.")
        if path.resolve() == (out / path.name).resolve():
            raise InputError(f"--out {out} should be another folder than that of {path}, which would be overwritten.")
        seen[path.name] = path


def _kept(out: Path, written: set[str], made: str, tokenizer_sha256: str) -> dict[str, Any]:
    """What the folder's meta.json says of files of earlier runs that stay beside those that this run writes.

    Raises:
        InputError: they were made otherwise: one dict.txt can't be right for both. Or something else is in the folder.
    """
    import os

    from ..storage.artefact import META, read_meta
    from ..storage.file_set import check_finished
    from ..text.words import DICTIONARY

    if not os.path.isfile(out / META):
        return {}
    meta = read_meta(out, "pieces", signature=str, tokenizer_sha256=str, files=dict)
    kept = {name: of for name, of in meta["files"].items() if name not in written and os.path.exists(out / name)}
    if kept:
        check_finished(out, DICTIONARY)
    if kept and (meta["signature"], meta["tokenizer_sha256"]) != (made, tokenizer_sha256):
        raise InputError(
            f"{out} should hold pieces of one making, but has {', '.join(sorted(kept))} of an earlier run, made by "
            f"{meta['signature']}, and this one would add others by {made}. Choose another --out, delete that folder, "
            "or give those files to --text, too."
        )
    return kept


def _warn(texts: list, max_pieces: int | None, positions: int) -> None:

    from ..shares import warn_of

    def say(count: int, what: str) -> None:
        for warning in warn_of(count, sum(text.lines for text in texts), what, "lines"):
            warn(warning)

    longest = max(text.longest for text in texts)
    cut, too_long, special = (sum(getattr(text, name) for text in texts) for name in ("cut", "too_long", "special"))
    say(cut, f"were cut after {max_pieces} pieces; the longest had {longest}.")
    if max_pieces is None or max_pieces > positions:
        say(
            too_long,
            f"have more pieces than the {positions} that the model has positions for; the longest has {longest}. Where "
            f"it reads whole lines, cut them with --max-pieces {positions}.",
        )
    say(special, "name the tokenizer's own first, last or padding symbol, and are read as if it stood there.")
