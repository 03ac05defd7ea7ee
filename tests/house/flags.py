"""Every flag of every command: of `visual-grounding VERB`, and of fairseq's commands with this package's parts.

PYTHONPATH=tests python -m house.flags     # writes the tables of docs/flags.md anew
"""

import argparse
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from enum import Enum
from typing import Any

import pytest
from conftest import REPOSITORY
from fairseq import options
from fairseq.dataclass import FairseqDataclass
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY

from visual_grounding.cli.main import CHOOSING, VERBS, parser_of
from visual_grounding.retrieval.finder import METHODS

PAGE = REPOSITORY / "docs/flags.md"
# A table of it, and before it the dataclasses whose flags it has.
TABLE = re.compile(
    r"(<!-- (?P<configs>\w+Config(?:, \w+Config)*) -->\n\| flag \| default \| \|\n\| --- \| --- \| --- \|\n)(?:\|.*\n)*"
)
FAIRSEQ = {
    "fairseq-train": options.get_training_parser,
    "fairseq-generate": options.get_generation_parser,
    "fairseq-interactive": lambda: options.get_generation_parser(interactive=True),
    "fairseq-validate": options.get_validation_parser,
    "fairseq-preprocess": options.get_preprocessing_parser,
}


def verbs() -> dict[str, argparse.ArgumentParser]:
    """`visual-grounding VERB` -> its parser; each method of `retrieve` is a command by itself."""
    found = {f"visual-grounding {verb}": parser_of(verb, []) for verb in VERBS if verb not in CHOOSING}
    for method in METHODS:
        found[f"visual-grounding retrieve --method {method}"] = parser_of("retrieve", ["--method", method])
    return found


def ours(registry: dict[str, Any]) -> list[str]:
    """Names in a registry that this package brought."""
    return [name for name, each in registry.items() if each.__module__.startswith("visual_grounding.")]


@contextmanager
def conflicts_noted() -> Iterator[list[str]]:
    """Flags that a parser had already; fairseq goes on without a word."""
    found: list[str] = []
    original = argparse._ActionsContainer._handle_conflict_error

    def note(self: Any, action: argparse.Action, conflicting: Any) -> None:
        found.extend(flag for flag, _ in conflicting)
        original(self, action, conflicting)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse._ActionsContainer, "_handle_conflict_error", note)
        yield found


def parser_with(command: str, choices: dict[str, str]) -> argparse.ArgumentParser:
    """fairseq's parser once it has seen `--task`, `--arch` and the like, and added their flags."""
    parser = FAIRSEQ[command]()
    words = [word for name, value in choices.items() for word in (f"--{name}", value)]
    needed = ["--path", "model.pt"] if command in ("fairseq-generate", "fairseq-interactive") else []
    # A scheduler whose flags are required refuses the line, once it has added them.
    with suppress(SystemExit), redirect_stderr(io.StringIO()):
        options.parse_args_and_arch(parser, ["data", *words, *needed])
    return parser


def combinations() -> Iterator[tuple[str, dict[str, str]]]:
    """Every command with each part of ours, and beside it each of fairseq's optimizers, schedulers and so on."""
    tasks = ours(TASK_REGISTRY)
    # Presets of a model have its flags: one stands for all.
    architectures = list({ARCH_MODEL_REGISTRY[arch]: arch for arch in ours(ARCH_MODEL_REGISTRY)}.values())
    criterions = ours(REGISTRIES["criterion"]["registry"])
    for task in tasks:
        for command in ("fairseq-generate", "fairseq-interactive", "fairseq-validate"):
            yield command, {"task": task}
        for arch in architectures:
            for criterion in [*criterions, "label_smoothed_cross_entropy"]:
                yield "fairseq-train", {"task": task, "arch": arch, "criterion": criterion}
        for kind in ("tokenizer", "bpe", "optimizer", "lr_scheduler", "scoring"):
            for name in REGISTRIES[kind]["registry"]:
                choice = {"task": task, kind.replace("_", "-"): name}
                if kind in ("optimizer", "lr_scheduler"):
                    yield "fairseq-train", {**choice, "arch": architectures[0]}
                else:
                    yield "fairseq-generate", choice


def flags_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Its long flags."""
    return {flag: action for flag, action in parser._option_string_actions.items() if flag.startswith("--")}


def mentioned(text: str) -> set[str]:
    """Flags that a text names; the beginning of one, as `--image-` in a pattern, isn't."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w-]|\{)", text))


def configs() -> list[type]:
    """The dataclasses of this package whose fields are flags of fairseq's commands."""
    return [each for each in every_dataclass(FairseqDataclass) if each.__module__.startswith("visual_grounding.")]


def every_dataclass(base: type) -> list[type]:
    """A class and all that derive from it."""
    return [base, *(found for each in base.__subclasses__() for found in every_dataclass(each))]


def rows_of(config: type) -> list[str]:
    """The rows of a page's table for the flags that a dataclass adds: `| flag | default | what it is for |`."""
    rows = []
    for name in vars(config).get("__annotations__", {}):
        field = config.__dataclass_fields__[name]
        if name == "data" or str(field.default).startswith("${"):  # no flag, or filled from another's
            continue
        default = "" if field.default in (None, "") or field.default is False else f"`{field.default}`"
        choices = field.type if isinstance(field.type, type) and issubclass(field.type, Enum) else ()
        said = field.metadata["help"] + (f" ({', '.join(f'`{each.value}`' for each in choices)})" if choices else "")
        flag = f"`--{name.replace('_', '-')}`"
        rows.append(f"| {flag} | {default} | {said} |".replace("  ", " ").replace("<", r"\<"))
    return rows


def page_of_flags(page: str) -> str:
    """The page with its tables made anew, from the dataclasses that each names."""
    by_name = {config.__name__: config for config in configs()}

    def made(table: re.Match[str]) -> str:
        rows = (row for name in table["configs"].split(", ") for row in rows_of(by_name[name]))
        return table[1] + "".join(f"{row}\n" for row in rows)

    return TABLE.sub(made, page)


if __name__ == "__main__":
    PAGE.write_text(page_of_flags(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
