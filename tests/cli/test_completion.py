"""What the printed script completes, in a real bash."""

import re
import shutil
import subprocess
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator

import pytest

from visual_grounding.cli.completion import whole_parser
from visual_grounding.cli.main import VERBS, main

COMPLETE = """
source "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
$(complete -p visual-grounding | grep -o -- "-F [^ ]*" | cut -d" " -f2)
printf "%s\\n" "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "script"
    with pytest.MonkeyPatch.context() as patch, open(path, "w") as out:
        patch.setattr("sys.stdout", out)
        assert main(["completion", "bash"]) == 0
    return path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("retr", {"retrieve"}),
        ("re", {"retrieve", "report", "revokenize"}),
        ("report r", {"runs", "regions"}),
        ("prepare s", {"snli", "sick"}),
        ("extract --backbo", {"--backbone"}),
        ("retrieve --word-v", {"--word-vectors"}),
        ("report heatmap --quie", {"--quiet"}),
        ("import --out scr", {"script"}),
        ("import --stores a --ou", {"--out"}),
        ("--vers", {"--version"}),
        ("retrieve --method de", {"dense"}),
    ],
)
def test_bash_completes_verbs_flags_and_files(script, words, expected):
    command = ["bash", "-c", COMPLETE, "bash", str(script), "visual-grounding", *words.split()]
    done = subprocess.run(command, cwd=script.parent, capture_output=True, text=True)
    assert set(done.stdout.split()) == expected, done.stderr


def test_every_verb_is_in_it():
    helped = whole_parser().format_help()
    assert all(verb in helped for verb in VERBS if " " not in verb)


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_scripts_with_the_same_flags(shell, tmp_path, capsys):
    """All of them; where the shell is installed, it also takes the script."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    flags = set(flags_of(whole_parser()))
    assert len(flags) > 100 and [flag for flag in flags if not re.search(rf"{re.escape(flag[2:])}\b", script)] == []
    assert all(word in script for verb in VERBS for word in verb.split())
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        done = subprocess.run([shell, "-n", tmp_path / "script"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def flags_of(parser: ArgumentParser) -> Iterator[str]:
    """Long ones, of a parser and those of its verbs."""
    for action in parser._actions:
        yield from (flag for flag in action.option_strings if flag.startswith("--"))
        if isinstance(action, _SubParsersAction):
            for each in action.choices.values():
                yield from flags_of(each)
