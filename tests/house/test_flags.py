"""Flags: each is defined once, says what it is for, and exists wherever a message or a page names it."""

import argparse
import ast
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache

import pytest
from conftest import REPOSITORY
from fairseq import tasks
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig
from house.flags import (
    FAIRSEQ,
    PAGE,
    TABLE,
    combinations,
    configs,
    conflicts_noted,
    flags_of,
    mentioned,
    page_of_flags,
    parser_with,
    rows_of,
    verbs,
)
from house.source import in_one, name_of, trees

from visual_grounding.data.visual_context import ImageTablesConfig, VisualContextConfig
from visual_grounding.models.visual_aware_transformer import VisualAwareTransformerConfig
from visual_grounding.tasks.grounded_translation import GroundedTranslationTask

# What fairseq itself defines twice, in every stock training too; the first one counts.
FAIRSEQS_OWN = {
    "--lr",  # optimization, and the cosine schedule
    "--max-source-positions",  # the translation task, and the transformer
    "--max-target-positions",
    "--source-lang",  # the translation task, and Moses' tokenizer
    "--target-lang",
}
# Flags of other programs, which messages and pages tell to use.
FOREIGN = {
    "fairseq's masked language models": {"--mask-whole-words"},
    "git": {"--short"},
    "hf": {"--local-dir"},
    "pip": {"--disable-pip-version-check", "--exclude-editable", "--find-links", "--force-reinstall", "--format",
            "--ignore-installed", "--index-url", "--no-build-isolation", "--no-deps", "--no-index"},
    "pytest": {"--dist", "--durations", "--no-loadscope-reorder"},
    "python": {"--clear", "--version"},
    "ruff": {"--check"},
    "sacrebleu": {"--paired-bs"},
    "subword-nmt, sacremoses, head": {"--glossaries", "--language"},
    "timeout": {"--kill-after"},
    "the recipes' run.sh": {"--full"},
    "torchrun": {"--no-python", "--nproc-per-node", "--standalone"},
}  # fmt: skip
# Rooms below the command line, which speak of things: it adds its flags, fairseq's tasks add theirs.
FLAGLESS = ("features/", "images/", "retrieval/", "storage/", "text/")
COMMAND = re.compile(r"\b(visual-grounding|fairseq-[a-z]+|torchrun|train|hf) .*")
PAGES = ("*.md", "docs/*.md", "examples/*/**/*.md", "benchmarks/*.md", "examples/*/**/*.sh", "scripts/*.sh")


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """Every command there is, with all that can be chosen."""
    found = {**verbs(), "fairseq-preprocess": FAIRSEQ["fairseq-preprocess"]()}
    for command, choices in combinations():
        words = " ".join(f"--{name} {value}" for name, value in choices.items())
        found[f"{command} {words}"] = parser_with(command, choices)
    return found


@cache
def known_flags() -> frozenset[str]:
    """Flags of all commands, of other programs, and of the repository's own scripts."""
    found = {flag for parser in parsers().values() for flag in flags_of(parser)}
    for path in [
        *REPOSITORY.glob("examples/*/**/*.py"),
        *REPOSITORY.glob("benchmarks/*.py"),
        *REPOSITORY.glob("scripts/*"),
    ]:
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'(?:add_argument\(\s*"|\[ "\$\{1:-\}" = )(--[a-z-]+)', text))
    return frozenset(found.union(*FOREIGN.values()))


def doubly_defined(command: str, choices: dict[str, str]) -> set[str]:
    """Flags that a command's parser had when a part of ours, or one beside it, added them."""
    with conflicts_noted() as found:
        parser_with(command, choices)
    return set(found) - FAIRSEQS_OWN


def unhelpful_fields(config: type) -> list[str]:
    """Flags that a dataclass adds without saying what they are for; a field filled from another's flag is none."""
    own = [config.__dataclass_fields__[name] for name in vars(config).get("__annotations__", {})]
    return [each.name for each in own if not each.metadata.get("help") and not str(each.default).startswith("${")]


def unknown_flags(text: str) -> set[str]:
    """Flags that a text names, and that no command has."""
    return mentioned(text) - known_flags()


def strings_of(tree: ast.AST) -> str:
    """All the text in a file, docstrings included."""
    return "\n".join(
        part.value for part in ast.walk(tree) if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )


def choices_of_errors(found: dict[str, ast.Module]) -> dict[str, str]:
    """The arguments that an `InputError` names beside its message, whose flags the command line says -> place."""
    return {
        part.value: f"{path}:{part.lineno}"
        for path, tree in found.items()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and name_of(call) == "InputError"
        for part in call.args[1:]
        if isinstance(part, ast.Constant)
    }


def flags_in_errors(found: dict[str, ast.Module]) -> list[str]:
    """Places where an `InputError`'s message names a flag, but for the flags of a command that it says to run."""
    places = []
    for path, tree in found.items():
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and name_of(call) == "InputError":
                message = strings_of(call).replace("\n", " ")
                if mentioned(COMMAND.sub("", message)):
                    places.append(f"{path}:{call.lineno}")
    return places


def test_no_flag_is_defined_twice() -> None:
    """fairseq drops the second definition in silence, with its default and its help."""
    swept = [(command, choices, doubly_defined(command, choices)) for command, choices in combinations()]
    assert len(swept) > 100
    assert [(command, choices, twice) for command, choices, twice in swept if twice] == []


def test_every_flag_of_the_command_line_has_help() -> None:
    missing = [
        (name, flag) for name, parser in verbs().items() for flag, action in flags_of(parser).items() if not action.help
    ]
    assert missing == []


def test_every_flag_for_fairseq_has_help() -> None:
    assert len(configs()) >= 7
    assert {each.__name__: unhelpful_fields(each) for each in configs() if unhelpful_fields(each)} == {}


def test_page_of_flags_is_what_is_made_of_the_dataclasses_and_has_them_all() -> None:
    """`fairseq-train --help` ends before a task or an architecture has added its flags."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_of_flags(page)
    expected = {row for config in configs() for row in rows_of(config)}
    assert len(expected) > 30
    found = [row for table in TABLE.finditer(page) for row in table[0].splitlines() if row.startswith("| `--")]
    assert sorted(found) == sorted(expected) and page.count("| `--") == len(found)
    assert page_of_flags(page.replace("| `--", "| `--other-", 3)) == page  # made anew, whatever was there


def test_command_on_the_page_of_flags_prints_their_help() -> None:
    page = PAGE.read_text(encoding="utf-8")
    (command,) = re.findall(r"^python -c '\n(.*?)'$", page, re.DOTALL | re.MULTILINE)
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for config in (VisualContextConfig, ImageTablesConfig, VisualAwareTransformerConfig):
        for row in rows_of(config):
            assert re.search(rf"^  {row.split('`')[1]}\b", done.stdout, re.MULTILINE), row


def test_flags_in_messages_and_docstrings_exist() -> None:
    found = {path: unknown_flags(strings_of(tree)) for path, tree in trees().items()}
    assert {path: flags for path, flags in found.items() if flags} == {}


def test_flags_on_pages_and_in_scripts_exist() -> None:
    paths = [path for pattern in PAGES for path in REPOSITORY.glob(pattern)]
    assert len(paths) > 15
    found = {str(path): unknown_flags(path.read_text(encoding="utf-8")) for path in paths}
    assert {name: flags for name, flags in found.items() if flags} == {}


def test_arguments_that_errors_name_are_flags() -> None:
    found = choices_of_errors(trees())
    assert found
    assert {name: place for name, place in found.items() if "--" + name.replace("_", "-") not in known_flags()} == {}


def test_flags_of_other_programs_are_still_named_somewhere() -> None:
    texts = [strings_of(tree) for tree in trees().values()]
    texts += [path.read_text(encoding="utf-8") for pattern in PAGES for path in REPOSITORY.glob(pattern)]
    named = set().union(*map(mentioned, texts))
    assert set().union(*FOREIGN.values()) - named == set()


def test_messages_of_the_rooms_below_the_command_line_name_no_flags() -> None:
    below = {path: tree for path, tree in trees().items() if path.startswith(FLAGLESS)}
    assert len(below) > 40
    assert flags_in_errors(below) == []


@dataclass
class TwiceConfig(VisualContextConfig, TranslationConfig):
    """A task that has `--image-ids` again, under another class."""

    arch_again: str = field(default="", metadata={"help": "", "argparse_alias": "--arch"})
    unexplained: int = 3
    explained: int = field(default=3, metadata={"help": "what it is for"})


def test_each_check_finds_its_counter_example(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in ("TASK_REGISTRY", "TASK_CLASS_NAMES", "TASK_DATACLASS_REGISTRY"):
        copy = getattr(tasks, registry).copy()
        monkeypatch.setattr(tasks, registry, copy)

    @register_task("defined_twice", dataclass=TwiceConfig)
    class DefinedTwiceTask(GroundedTranslationTask):
        """As the other, with one flag more than there may be."""

    assert doubly_defined("fairseq-train", {"task": "defined_twice", "arch": "transformer"}) == {"--arch"}
    assert unhelpful_fields(TwiceConfig) == ["arch_again", "unexplained"]
    assert unknown_flags("give --image-featurs DIR, --image-features DIR or --") == {"--image-featurs"}
    assert mentioned("--image-{name}, `--a-b` (--c), --d=3; a--e ---f --g-\\1") == {"--a-b", "--c", "--d"}
    example = in_one('raise InputError("too few", "batch_size", "no_such_thing")')
    assert choices_of_errors(example) == {"batch_size": "example.py:1", "no_such_thing": "example.py:1"}
    assert flags_in_errors(in_one('raise InputError(f"{out} is there. " "Choose another --out.")')) == ["example.py:1"]
    assert flags_in_errors(in_one('InputError("Make it: visual-grounding index --out DIR")')) == []
