"""What the printed script completes, in a real bash."""

import subprocess

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
def test_other_shells_have_scripts_with_the_same_flags(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "word-vectors" in capsys.readouterr().out
