"""What happens when fairseq loads this package: names are registered, checkpoints load, mistakes are readable."""

import logging
import os
import re
import sys
import warnings
from pathlib import Path
from traceback import walk_tb
from types import TracebackType

from .errors import InputError

# Whose warnings a user can't act on: without these filters a plain run prints about thirty such lines.
_NOISY_MODULES = r"hydra|fairseq|torch\.(jit|nn\.functional|utils\.data)|omegaconf|pkg_resources|sys|__main__"


_FAIRSEQ_COMMANDS = ("fairseq", "train.py", "hydra_train.py", "generate.py", "validate.py", "interactive.py")


def register() -> None:
    """Register every task, model and criterion with fairseq; safe to call again."""
    for category in (UserWarning, FutureWarning, DeprecationWarning):
        warnings.filterwarnings("ignore", category=category, module=_NOISY_MODULES)
    if "fairseq" not in sys.modules:
        _import_fairseq_quietly()
    logging.getLogger("hydra").setLevel(logging.INFO)

    from .storage.checkpoints import allow_fairseq_checkpoints

    allow_fairseq_checkpoints()
    from . import criterions, models, tasks  # noqa: F401

    if Path(sys.argv[0] if sys.argv else "").name.split("-")[0] in _FAIRSEQ_COMMANDS:
        sys.excepthook = _print_input_errors_alone


def _import_fairseq_quietly() -> None:
    """fairseq's text-to-speech task turns the whole program's logging on when it is imported, and talks; undo that."""
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    import fairseq.tasks  # noqa: F401

    root.setLevel(level)
    root.handlers[:] = handlers


def _broken_checkpoint(error: BaseException, trace: TracebackType | None) -> str | None:
    """What to say where fairseq finds no checkpoint, or half of one; None for other errors."""
    if isinstance(error, OSError) and str(error).startswith("Model file not found: "):
        return f"--path names {str(error).partition(': ')[2]}, but there is no such file."
    for frame, _ in walk_tb(trace):
        if frame.f_code.co_name == "load_checkpoint_to_cpu":
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            return f"{frame.f_locals.get('path')} should be a whole fairseq checkpoint, but can't be read: {reason}"
    return None


def _print_input_errors_alone(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """In fairseq's commands, a user's mistake prints its message alone and exits with 2, as in our own command."""
    cause: BaseException | None = error
    # A process started by torch.multiprocessing (fairseq's way to use several GPUs) sends its traceback as text.
    while cause is not None and not isinstance(cause, InputError) and "errors.InputError: " not in str(cause):
        cause = cause.__cause__ or cause.__context__
    # A data loader's worker process sends the whole traceback as the message; ours is its last paragraph.
    message = (
        _broken_checkpoint(error, trace)
        if cause is None
        else re.split(r"^(?:\w+\.)*InputError: ", str(cause), flags=re.MULTILINE)[-1].strip()
    )
    if message is None:
        sys.__excepthook__(kind, error, trace)
        return
    print(f"error: {message}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(2)  # an exception hook can't choose the exit status otherwise
