"""Every command line in the README, the docs and the examples' scripts parses."""

import re
import shlex
from pathlib import Path

import pytest
from conftest import REPOSITORY
from fairseq import options

from visual_grounding.cli.main import VERBS, parser_of

PARSERS = {
    "fairseq-train": options.get_training_parser,
    "fairseq-generate": options.get_generation_parser,
    "fairseq-interactive": lambda: options.get_generation_parser(interactive=True),
    "fairseq-validate": options.get_validation_parser,
    "fairseq-preprocess": options.get_preprocessing_parser,
}
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("examples/*/**/*.md")])
SCRIPTS = sorted(REPOSITORY.glob("examples/*/**/*.sh"))


def commands(path: Path) -> list[str]:
    """Command lines of a page's shell blocks, or of a script, continuation lines joined."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"^```(?:bash|sh)\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    text = re.sub(r"\\\n\s*", " ", text)
    names = "|".join([*PARSERS, "visual-grounding"])
    found = re.findall(rf"^[^#\n]*?\b((?:{names}) [^\n]*)", text, re.MULTILINE)
    found = [re.split(r"\s(?:\d?>|\||&&|\|\||&)|\s#|;", command)[0].rstrip() for command in found]
    # A command inside "$(…)" ends with what belongs to the outside.
    return [command if command.count('"') % 2 == 0 else command.rstrip('")') for command in found]


def words(command: str) -> list[str]:
    """Shell words with variables made harmless: arrays, `$@` and optional flags vanish, others become 1."""
    command = re.sub(r'"\$\(visual-grounding user-dir\)"|\$VISUAL_GROUNDING', "visual_grounding", command)
    command = re.sub(r"\"?\$\{[^}]*\[@\][^}]*\}\"?|\"?\$@\"?|\$\{[^}]*:\+[^}]*\}", "", command)
    return shlex.split(re.sub(r"\$\(\(.*?\)\)|\$\{[^}]*\}|\$\w+", "1", command))


def parse(command: str) -> None:
    """Parse a command as the program would; SystemExit means that it wouldn't."""
    name, *arguments = words(command)
    if name == "visual-grounding":
        length = 2 if " ".join(arguments[:2]) in VERBS else 1
        verb = " ".join(arguments[:length])
        assert verb in VERBS, command
        parser_of(verb, arguments[length:]).parse_args(arguments[length:])
    elif name == "fairseq-preprocess":
        PARSERS[name]().parse_args(arguments)
    else:
        if "--user-dir" in arguments:  # it is imported already
            place = arguments.index("--user-dir")
            del arguments[place : place + 2]
        if name == "fairseq-train" and "--arch" not in arguments:  # in a function, whose callers name it
            arguments += ["--arch", "visual_aware_transformer"]
        options.parse_args_and_arch(PARSERS[name](), arguments)


# The page on extending names parts that only its own test has.
CASES = [(path, command) for path in [*PAGES, *SCRIPTS] if path.name != "extending.md" for command in commands(path)]


@pytest.mark.parametrize(
    ("path", "command"), CASES, ids=[f"{path.relative_to(REPOSITORY)}-{n}" for n, (path, _) in enumerate(CASES)]
)
def test_command_line_parses(path, command):
    try:
        parse(command)
    except SystemExit as error:
        pytest.fail(f"{path.name}: {command}: exit {error.code}")
    assert command


def test_flags_of_transformers_own_scripts_are_those_of_its_trainer():
    from transformers import TrainingArguments

    text = (REPOSITORY / "examples/vokenization/README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(r"^python run_(?:glue|qa|swag)\.py (.*)$", text, re.MULTILINE)
    assert len(commands) == 4
    own = {"model_name_or_path", "task_name", "dataset_name", "max_seq_length", "doc_stride", "version_2_with_negative"}
    for command in commands:
        flags = set(re.findall(r"--(\w+)", command))
        assert {"output_dir", "learning_rate"} <= flags and flags - own <= set(TrainingArguments.__dataclass_fields__)


def test_documentation_has_commands_to_sweep():
    assert len([path for path, _ in CASES if path.name == "README.md" and path.parent == REPOSITORY]) >= 14
    assert {path.name for path, _ in CASES} >= {"README.md", "run.sh"}


def anchors(page):
    """What a link may lead to in a page: its headings, as their pages on the web name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"\]\([^)]*\)", "", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def test_links_in_pages_lead_somewhere():
    broken, sections = [], 0
    for page in PAGES:
        for link, section in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
            there = page.parent / link if link else page
            if link.startswith("http"):
                continue
            sections += bool(section)
            if not there.exists() or (section and section not in anchors(there)):
                broken.append(f"{page.relative_to(REPOSITORY)}: {link}#{section}")
    assert not broken and PAGES and sections > 5
