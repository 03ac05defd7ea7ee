"""What happens when fairseq meets this package: names are registered, checkpoints load, mistakes are readable.

Importing this package doesn't import fairseq: its rooms that need none work without it, and it takes seconds. So
whichever of the two is imported last registers everything: this package at once where fairseq is there, else fairseq's
own import, as soon as it has finished.
"""

import errno
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from traceback import walk_tb
from types import ModuleType, TracebackType

from .errors import InputError, first_line, printable

# Whose warnings a user can't act on: without these filters a plain run prints about thirty such lines.
_NOISY_MODULES = r"hydra|fairseq|torch\.(jit|nn\.functional|utils\.data)|omegaconf|pkg_resources|sys|__main__"

MATMUL = "VISUAL_GROUNDING_MATMUL"  # of the environment

_waiting: list[str] = []  # modules of others, to be imported once ours are registered


def register_with_fairseq() -> None:
    """Register every task, model and criterion: now where fairseq is imported, else once it is; safe to call again."""
    if sys.modules.get("fairseq") is not None:
        _register()
    elif not any(isinstance(finder, _AfterFairseq) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterFairseq())


def import_with_fairseq(*modules: str) -> None:
    """Import modules that register something with fairseq: now where fairseq is imported, else as soon as it is.

    For packages that bring architectures, tasks or criterions beside this one's; theirs come first.

    Args:
        modules: full names, such as `my_plugin.my_model`.
    """
    _waiting.extend(name for name in modules if name not in _waiting)
    if sys.modules.get("fairseq") is not None:
        _register()
    else:
        register_with_fairseq()


class _AfterFairseq(MetaPathFinder):
    """Python asks this first where `fairseq` is; the answer is the others', with our registration at its end.

    It stays until fairseq is imported, since a question alone (`find_spec`, "is it installed?") imports nothing.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of `fairseq`; None for all other modules."""
        if fullname != "fairseq":
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next((found for finder in others if (found := finder.find_spec(fullname, path, target))), None)
        if spec is not None and spec.loader is not None:
            loader, load = spec.loader, spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                _hide_noise()
                with _logging_as_it_was():
                    load(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _register()

            loader.exec_module = load_and_register  # type: ignore[method-assign]  # a loader is made for each question
        return spec


def _register() -> None:
    _hide_noise()
    logging.getLogger("hydra").setLevel(logging.INFO)

    from .storage.checkpoints import allow_fairseq_checkpoints

    allow_fairseq_checkpoints()
    from . import criterions, models, tasks  # noqa: F401

    for name in _waiting:
        import_module(name)
    if _is_fairseq_command(sys.argv[0] if sys.argv else ""):
        sys.excepthook = _print_input_errors_alone
        choose_products()
        _refuse_pipes(sys.argv)


def choose_products() -> None:
    """Let torch multiply matrices of float32 in bfloat16, where the environment asks for it by `MATMUL`.

    Processors with AMX do it several times as fast; weights and sums stay float32. fairseq's `--bf16` asks for a TPU.

    Raises:
        InputError: it asks for something else.
    """
    asked = os.environ.get(MATMUL) or "float32"
    if asked not in ("float32", "bfloat16"):
        raise InputError(f"{MATMUL} should be float32 or bfloat16, but is {asked}.")
    if asked == "bfloat16":
        import torch

        torch.set_float32_matmul_precision("medium")
        if not torch.cuda.is_available():
            # torch's fused attention multiplies a few pieces at a time, for which this costs ten times what it saves.
            torch.backends.cuda.enable_flash_sdp(False)  # in spite of its name of a CPU's, too


_NO_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)
_NO_MEMORY = "DefaultCPUAllocator: "  # in what torch says of a CPU's
# How torch's message begins.
_NO_DEVICE = ("Found no NVIDIA driver", "Torch not compiled with CUDA enabled", "No CUDA GPUs are available")


def _hide_noise() -> None:
    for category in (UserWarning, FutureWarning, DeprecationWarning):
        warnings.filterwarnings("ignore", category=category, module=_NOISY_MODULES)


@contextmanager
def _logging_as_it_was() -> Iterator[None]:
    """fairseq's text-to-speech task turns the whole program's logging on when it is imported, and talks; undo that."""
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


def _is_fairseq_command(program: str) -> bool:
    """Whether this process runs one of fairseq's commands, as a console script or by `python -m fairseq_cli.train`.

    >>> [_is_fairseq_command(name) for name in ("/bin/fairseq-train", "lib/fairseq_cli/train.py", "my/train.py")]
    [True, True, False]
    """
    path = Path(program)
    return path.name.startswith("fairseq-") or path.parent.name == "fairseq_cli"


def _known_mistake(error: BaseException, trace: TracebackType | None) -> str | None:
    """What to say where fairseq finds no checkpoint, or half of one, no GPU, no flag that it needs; else None."""
    if isinstance(error, MemoryError) or _NO_MEMORY in str(error):
        return f"not enough memory ({first_line(error)}). Choose smaller sizes or batches."
    if str(error).startswith(_NO_DEVICE):
        said = first_line(error).partition(". ")[0].rstrip(".")
        if "--fp16" in sys.argv:
            also = "" if "--cpu" in sys.argv else ", and add --cpu"
            return f"--fp16 needs a GPU, but there is none ({said}). Leave it out{also}."
        return f"a GPU was asked for, but there is none ({said}). Add --cpu."
    if str(error).startswith("Must specify batch size"):
        return "nothing says how many sentences, or words, an update learns from. Give --batch-size, or --max-tokens."
    if str(error) == "optimizer is required!":
        return "nothing says how weights are updated. Give --optimizer, such as --optimizer adam."
    if isinstance(error, OSError) and str(error).startswith("Model file not found: "):
        return f"--path names {str(error).partition(': ')[2]}, but there is no such file."
    if isinstance(error, OSError) and error.errno in _NO_NAMES:
        name = str(error.filename)
        return f"{name[:80]}{'…' if len(name) > 80 else ''} can't be opened: {error.strerror}."
    if isinstance(error, OSError) and error.filename is not None and (flag := _flag_of(str(error.filename))):
        return f"{flag} names {error.filename}, which can't be used: {error.strerror}."
    if isinstance(error, AssertionError | TypeError) and _translates() and not _flag_is_given("--path"):
        return "nothing says which model translates. Give --path CHECKPOINT."
    if found := _of_sizes(str(error)) or _of_divergence(error):
        return found
    frames = [frame for frame, _ in walk_tb(trace)]
    for frame in frames:
        name, known = frame.f_code.co_name, frame.f_locals
        if name == "load_checkpoint_to_cpu":
            return _why_unreadable(str(known.get("path")), error)
        if name == "buffered_read" and isinstance(error, UnicodeDecodeError):
            typed = "what is typed" if known.get("input") == "-" else f"--input {known.get('input')}"
            return f"{typed} should be UTF-8, but isn't: {first_line(error)}."
        told = frame is frames[-1] and name in ("validate", "get_valid_stats") and "stats" in known
        if told and isinstance(error, KeyError) and error.args:
            return (
                f"--best-checkpoint-metric is {error.args[0]}, but what validation tells is "
                f"{', '.join(known['stats'])}: name one of these. BLEU, for instance, is told with --eval-bleu alone."
            )
    return None


def _translates() -> bool:
    return Path(sys.argv[0]).name.removesuffix(".py") in (
        "fairseq-generate",
        "fairseq-interactive",
        "generate",
        "interactive",
    )


def _flag_is_given(flag: str) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in sys.argv)


def _flag_of(value: str) -> str | None:
    """The flag of this command line that has a value."""
    for flag, given in pairwise(_apart(sys.argv)):
        if flag.startswith("--") and given == value:
            return flag
    return None


def _of_sizes(said: str) -> str | None:
    """What to say where fairseq finds sentences that are longer than something."""
    if match := re.match(r"Size of sample #(\d+) is invalid \(=(.*)\) since max_positions=(.*), skip", said):
        sizes = re.sub(r"np\.int\d+\((\d+)\)", r"\1", match[2])
        both = " (of source and target)" if "," in sizes else ""
        return (
            f"sentence {int(match[1]) + 1} has {sizes} tokens{both}, more than the {match[3]} that "
            "are possible. Shorten it; fairseq-train and fairseq-generate leave such sentences out with "
            "--skip-invalid-size-inputs-valid-test."
        )
    if match := re.match(r"Sentences lengths should not exceed max_tokens=(\d+)", said):
        return f"--max-tokens is {match[1]}, but a sentence has more tokens. Give as many as the longest has, at least."
    if said.startswith("The dataset is empty. This could indicate"):
        return (
            "no sentence of a split is left: there is none, or all are longer than --max-tokens or the model's "
            "positions (--max-source-positions, --max-target-positions)."
        )
    return None


def _of_divergence(error: BaseException) -> str | None:
    """What to say where a loss or its gradients became NaN or infinite; fairseq looks for where, and fails anew."""
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "OutOfMemoryError":
        return None
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, FloatingPointError):
        cause = cause.__context__
    if cause is None or not re.search("Nan/Inf|loss scale|NaN|infinit", str(cause)):
        return None
    return (
        f"training diverged: its loss or gradients became NaN or infinite ({first_line(cause)}). A lower --lr, more "
        "--warmup-updates or --clip-norm 1 may help; where the first update fails, look for such numbers in the data."
    )


def _why_unreadable(path: str, error: BaseException) -> str:
    """What is wrong with a checkpoint, in our words where our own reader finds it, too."""
    from .storage.checkpoints import load_settings

    try:
        load_settings(path)
    except InputError as ours:
        return str(ours)
    return f"{path} should be a whole fairseq checkpoint, but can't be read: {first_line(error)}"


def _apart(words: Sequence[str]) -> list[str]:
    """The words of a command line, with those such as --path=FILE in two."""
    return [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]


def _refuse_pipes(words: Sequence[str]) -> None:
    """Refuse a checkpoint that fairseq would wait for.

    Raises:
        InputError: one that the words of a command line name is a pipe or a device.
    """
    for flag, value in pairwise(_apart(words)):
        if flag in ("--path", "--restore-file", "--finetune-from-model"):
            for path in value.split(os.pathsep):
                if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
                    raise InputError(f"{flag} should name a file, but {path} is a pipe or a device.")


def _print_input_errors_alone(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """In fairseq's commands, a user's mistake prints its message alone and exits with 2, as in our own command."""
    cause: BaseException | None = error
    # A process started by torch.multiprocessing (fairseq's way to use several GPUs) sends its traceback as text.
    while cause is not None and not isinstance(cause, InputError) and "errors.InputError: " not in str(cause):
        cause = cause.__cause__ or cause.__context__
    # A data loader's worker process sends the whole traceback as the message; ours is its last paragraph.
    message = (
        _known_mistake(error, trace)
        if cause is None
        else re.split(r"^(?:\w+\.)*InputError: ", str(cause), flags=re.MULTILINE)[-1].strip()
    )
    if message is None:
        sys.__excepthook__(kind, error, trace)
        return
    print(f"error: {printable(message)}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(2)  # an exception hook can't choose the exit status otherwise
