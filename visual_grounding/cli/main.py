"""Dispatch `visual-grounding VERB …` to `visual_grounding.cli.<verb>`, importing only that verb."""

import argparse
import errno
import os
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any, TextIO

from .._interrupted import imported
from .._version import __version__
from ..errors import InputError, first_line, is_of_memory, printable
from ..flags import FlagParser, close_flags, see
from ..storage.ranks import this_rank

_COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
VERBS = {
    "extract": "images -> feature store, with a pretrained network",
    "import": "feature arrays that you already have -> feature store",
    "prepare": "data -> what a task trains on: one of the following",
    "prepare captions": "captions -> a data folder for training a retriever",
    "prepare pieces": "text -> a pretrained model's pieces, for fairseq-preprocess",
    "prepare snli": "SNLI or MNLI -> examples of understanding, which images are found for",
    "prepare sick": "SICK -> the same",
    "prepare rte": "RTE -> the same",
    "prepare glue": "any task of GLUE, or any table -> the same",
    "prepare joci": "JOCI -> the same; answers are numbers",
    "prepare vua": "VUA's metaphors, verbs or nouns -> the same; asked of a word",
    "prepare conll": "CoNLL's columns -> the same; a tag for each word",
    "prepare pdtb": "discourse relations as PDTB has them -> the same",
    "export": "checkpoint -> retriever folder that loads without fairseq, or a language model for transformers",
    "index": "feature store -> embeddings in a retriever's space",
    "retrieve": "sentences -> image ids",
    "vokenize": "text -> an image for every token",
    "revokenize": "vokens of one tokenizer's pieces -> those of another's",
    "average": "several checkpoints -> one with their mean weights",
    "evaluate": "translations -> BLEU, chrF, METEOR, significance",
    "evaluate contrastive": "scores of correct and incorrect translations -> which a model prefers (CoMMuTE)",
    "evaluate perplexity": "grounded language models -> how well they tell hidden words, significance",
    "evaluate predictions": "a model of understanding -> accuracy, F1, correlations, significance",
    "stats": "corpora in one table: sizes, divergence, share of grounded tokens",
    "report": "sentences, their images and translations side by side",
    "report heatmap": "where in its image a text is, as a heat map; the pointing game",
    "report regions": "photos with their regions drawn: boxes, labels, scores",
    "report vokens": "sentences with the image of each of their pieces",
    "report runs": "several seeds in one table: spread, differences, one test",
    "probe": "what a trained model does with its images: one of the following",
    "probe attention-mass": "share of each decoder layer's attention on regions, and on which boxes",
    "probe entity-masking": "words of the source hidden: BLEU with and without them",
    "probe last-word": "last words that a pre-trained stream predicts, with images and without",
    "doctor": "check a whole set-up, and say what is wrong and what to do",
    "user-dir": "print the path for fairseq's --user-dir",
    "completion": "print a script that completes verbs and flags, for bash, zsh or tcsh",
}
# Where the name of the verb can't be the name of its file, or several share one.
MODULES = {"import": "import_"}
MODULES |= {
    f"prepare {task}": "prepare_examples" for task in ("snli", "sick", "rte", "glue", "joci", "vua", "conll", "pdtb")
}
CHOOSING = ("retrieve",)  # their flags depend on a choice among them
CONTINUING = ("extract", "import", "index", "retrieve", "vokenize", "revokenize")  # what they finished stays
# What is wrong with a place that was named: its name is too long or a loop, its file system full or not to be written.
OF_THE_PLACE = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC}
UNREAD = 141  # what shells give for a closed pipe
_OF_OLD_PACKAGES = (ImportError, AttributeError, TypeError)  # what one says that is too old
_OF_MEMORY = ("--batch-size", "--batch-tokens", "--image-size")  # flags that say how much is computed at a time
INTERRUPTED = 130  # what shells give for Ctrl-C


def parser_of(verb: str, words: Sequence[str]) -> argparse.ArgumentParser:
    """The flags of a verb, given the words behind it.

    Raises:
        InputError: the words choose something that isn't there.
    """
    module = module_of(verb)
    parser = FlagParser(
        prog=f"visual-grounding {verb}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress; results and warnings are printed")
    if verb in CHOOSING:
        module.add_chosen_arguments(parser, words)
    return parser


def module_of(verb: str) -> ModuleType:
    """The file of a verb."""
    return import_module(f".{MODULES.get(verb, verb.replace('-', '_').replace(' ', '_'))}", __package__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. Where torchrun started several processes, only the first prints the result.

    Returns:
        the exit status: 0; 2 where the input is wrong (the message alone is printed); 130 for Ctrl-C.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    verb = _verb_of(argv)
    words = argv[2 if " ".join(argv[:2]) == verb else 1 :]
    parser = None
    try:
        imported()
        if any("\0" in word for word in argv):  # no shell gives it, but a notebook may
            raise InputError(f"{next(word for word in argv if chr(0) in word)!r} holds a zero byte: it names no file.")
        if "" in words:
            before = (verb, *words)[words.index("")]
            raise InputError(f"what stands behind {before} is empty: it may be a variable that isn't set.")
        module = module_of(verb)
        parser = parser_of(verb, words)
        args = parser.parse_args(words)
        if args.quiet or "visual_grounding.progress" in sys.modules:
            import_module("..progress", __package__).show_progress(not args.quiet)
        if this_rank().leads:
            # Where it is closed there is none. `_Shown` is the stream, but for `write`.
            with redirect_stdout(sys.stdout and _Shown(sys.stdout)):  # type: ignore[type-var]
                return module.run(args) or 0
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            return module.run(args) or 0
    except InputError as error:
        unfit = _unfit_packages() if isinstance(error.__cause__, _OF_OLD_PACKAGES) else ""  # it may not be the input's
        print(f"visual-grounding {verb}: {error}{_flags(error, parser)}{unfit}", file=sys.stderr)
        return 2
    except _OF_OLD_PACKAGES as error:
        unfit = _unfit_packages()
        if not unfit:
            raise
        traceback.print_exc()  # it may be ours all the same
        print(f"visual-grounding {verb}: {first_line(error)}.{unfit}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # who reads what is printed has enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains once more at its end
        return UNREAD
    except OSError as error:
        if error.filename is None or error.errno not in OF_THE_PLACE:
            raise
        print(printable(f"visual-grounding {verb}: {error.filename}: {error.strerror}."), file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        reason = first_line(error).rpartition("Allocator: ")[2] if str(error) else ""
        if reason == "can't start new thread":
            print(
                f"visual-grounding {verb}: this machine starts no more threads. Give fewer --workers.", file=sys.stderr
            )
            return 2
        if not is_of_memory(error):
            raise
        known = parser._option_string_actions if parser is not None else {}
        smaller = [flag for flag in _OF_MEMORY if flag in known]
        less = f", such as a smaller {' or '.join(smaller)}" if smaller else ""
        said = f" ({reason})" if reason else ""
        print(f"visual-grounding {verb}: not enough memory{said}. Ask for less at a time{less}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        again = "; run the same command again to continue" if verb in CONTINUING else ""
        print(f"visual-grounding {verb}: interrupted{again}", file=sys.stderr)
        return INTERRUPTED


class _Shown:
    """Standard output to which what files bring, names of photos or labels, can't give commands of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write what is printed; escaped is what the stream's encoding lacks, and control but tabs and line ends."""
        shown = _COMMANDS.sub(lambda found: ascii(found[0])[1:-1], text)
        encoding = getattr(self._stream, "encoding", None)
        if encoding and getattr(self._stream, "errors", None) == "strict":
            shown = shown.encode(encoding, "backslashreplace").decode(encoding)
        return self._stream.write(shown)


def _verb_of(argv: Sequence[str]) -> str:
    """The verb of a command line; it ends the process where there is none."""
    overview = FlagParser(
        prog="visual-grounding",
        description="Find images for text, and train text models that use them.",
        epilog="\n".join(f"  {verb:20} {what}" for verb, what in VERBS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    overview.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    overview.add_argument(
        "verb", choices=VERBS, metavar="VERB", help="one of the verbs below; VERB --help for its flags"
    )
    length = 2 if " ".join(argv[:2]) in VERBS else 1
    close = get_close_matches(" ".join(argv[:2]), VERBS, 1) or get_close_matches(" ".join(argv[:1]), VERBS, 1)
    if argv and not argv[0].startswith("-") and " ".join(argv[:length]) not in VERBS and close:
        overview.error(f"there is no {argv[0]!r}; did you mean {close[0]}?")
    if argv and argv[0].startswith("-") and argv[0] not in overview._option_string_actions:
        close = close_flags(argv[0], overview.shown_flags())
        meant = f"did you mean {close[0]}?" if close else f"if it is a verb's: visual-grounding VERB {argv[0]}"
        overview.error(f"there is no {argv[0]!r} before a verb; {meant}")
    return str(overview.parse_args([" ".join(argv[:length])] if argv else []).verb)


def _unfit_packages() -> str:
    """A sentence on packages that are too old or too new, with a space before it; nothing where none is."""
    found = import_module("..diagnosis.environment", __package__).unfit_packages()
    said = "; ".join(f"{each.text} {each.remedy}".rstrip() for each in found)
    return f" Packages should be others: {said}" if found else ""


def _flags(error: InputError, parser: argparse.ArgumentParser | None) -> str:
    """The flags of this verb that a message is about, since what it says speaks of things alone."""
    choices = [f"--{choice.replace('_', '-')}" for choice in error.choices]
    flags = [flag for flag in choices if parser is not None and flag in parser._option_string_actions]
    return see(flags)
