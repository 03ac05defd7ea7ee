"""What the shell recipes are made of: a step is done once, wholly or not at all."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture
def recipe(tmp_path: Path):
    """Runs lines of bash behind steps.sh, in a folder of their own."""

    def run(lines: str, **variables: str) -> subprocess.CompletedProcess[str]:
        script = f"set -euo pipefail\nOUT={tmp_path}/out\nsource {REPOSITORY}/examples/steps.sh\n{lines}"
        return subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env={**os.environ, **variables}, capture_output=True, text=True
        )

    return run


def test_step_is_run_once_and_refuses_other_settings(recipe, tmp_path):
    assert recipe("run count bash -c 'echo x >> counted'").returncode == 0
    assert recipe("run count bash -c 'echo x >> counted'").returncode == 0
    assert (tmp_path / "counted").read_text() == "x\n"
    other = recipe("run count bash -c 'echo y >> counted'")
    assert other.returncode == 2 and "was made with other settings: there count was" in other.stderr


def test_one_recipe_at_a_time_works_in_a_folder(recipe, tmp_path):
    script = f"{REPOSITORY}/examples/steps.sh"
    inner = f"OUT={tmp_path}/out; source {script}; step other"
    done = recipe(f'step one; step two; bash -c "{inner}"; env -u RECIPE_HOLDS bash -c "{inner}" || echo refused $?')
    assert "refused 2" in done.stdout and done.stdout.count("] ") == 3  # a script of its own goes on
    assert f"{tmp_path}/out is in use by a recipe" in done.stderr
    assert recipe("step again").returncode == 0
    lanes = recipe("first() { step one; sleep 0.5; }; second() { step two; }; later first; later second; finish")
    assert lanes.returncode == 0 and lanes.stdout.count("] ") == 2, lanes.stderr  # lanes of one recipe


def test_how_matrices_are_multiplied_goes_to_every_command(recipe):
    said = "echo $VISUAL_GROUNDING_MATMUL"
    assert [recipe(said).stdout, recipe(said, MATMUL="bfloat16").stdout] == ["float32\n", "bfloat16\n"]
    other = recipe(said, MATMUL="half")
    assert (other.returncode, other.stderr) == (2, "MATMUL should be float32 or bfloat16, but is 'half'.\n")


def test_an_unknown_device_is_refused_before_anything_is_done(recipe, tmp_path):
    done = recipe("echo on", DEVICE="cuda:0")
    assert (done.returncode, done.stdout) == (2, "") and not (tmp_path / "out").exists()
    assert done.stderr == "DEVICE should be cpu or cuda, but is 'cuda:0'.\n"


def test_unknown_words_of_a_choice_are_refused(recipe):
    assert recipe('check_among ROWS "b a" "a b c"; echo on').stdout == "on\n"
    other = recipe('check_among ROWS "a bb" "a b c"; echo on')
    assert (other.returncode, other.stdout) == (2, "")
    assert other.stderr == "ROWS should be among a b c, but has 'bb'.\n"


@pytest.mark.parametrize(
    ("folder", "choices", "asked", "not_asked"),
    [
        ("vokenization", {"ROWS": "none random"}, ("random", "mlm-more"), ("voken", "mlm")),
        (
            "grounding_strategies",
            {"STRATEGIES": "i2t none-captions"},
            ("'i2t '", "'none-captions '"),
            ("'none '", "regions-"),
        ),
    ],
)
def test_rows_are_asked_for_whatever_the_command_before_said(folder, choices, asked, not_asked):
    lines = f"source examples/{folder}/settings.sh\nset +e\n"
    for status in ("true", "false"):
        lines += "".join(f"{status}; asked {row} || echo lacks {row}\n" for row in asked)
        lines += "".join(f"{status}; asked {row} && echo has {row}\n" for row in not_asked)
    done = subprocess.run(
        ["bash", "-c", lines], cwd=REPOSITORY, env={**os.environ, **choices}, capture_output=True, text=True
    )
    assert done.stdout == "", done.stderr
    refused = {name: "nonsense" for name in choices}
    done = subprocess.run(
        ["bash", f"examples/{folder}/prepare.sh"],
        cwd=REPOSITORY,
        env={**os.environ, **refused},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "but has 'nonsense'." in done.stderr


def test_function_that_fails_in_its_middle_is_not_done(recipe, tmp_path):
    lines = "both() { local file; for file in gone there; do cat $file; done; }\nrun both both"
    (tmp_path / "there").write_text("here\n")
    failed = recipe(lines)
    assert failed.returncode == 1 and "This failed; the whole log is in" in failed.stderr
    assert not (tmp_path / "out/done/both").exists() and "here" not in (tmp_path / "out/logs/both.log").read_text()
    (tmp_path / "gone").write_text("now\n")
    assert recipe(lines).returncode == 0
    assert (tmp_path / "out/logs/both.log").read_text() == "now\nhere\n"  # the log is the last run's


def test_stopped_training_keeps_the_log_of_its_first_part(recipe, tmp_path):
    lines = "fairseq-train() { echo epoch $(wc -l < epochs); test -f ready; }\nrun train fairseq-train"
    (tmp_path / "epochs").write_text("\n")
    assert recipe(lines).returncode == 1
    (tmp_path / "epochs").write_text("\n\n")
    (tmp_path / "ready").touch()
    assert recipe(lines).returncode == 0
    assert (tmp_path / "out/logs/train.log").read_text().split() == ["epoch", "1", "epoch", "2"]


def test_one_of_several_that_fails_stops_the_recipe(recipe):
    ended = recipe("later run good true\nlater run bad false\nfinish\necho went on")
    assert ended.returncode == 1 and "went on" not in ended.stdout
    assert "Not all of it was done; given again, the same command goes on." in ended.stderr


def test_every_round_of_lanes_is_waited_for(recipe, tmp_path):
    both = "later slow a$round; later slow b$round; finish; ls $OUT/done"
    lines = f"slow() {{ sleep 0.5; run $1 true; }}\nfor round in 1 2; do {both}; done"
    ended = recipe(lines)
    assert ended.returncode == 0 and ended.stdout.split() == ["a1", "b1", "a1", "a2", "b1", "b2"], ended.stderr
    halfway = "broken() { run first true; run second false; run third true; }\nlater broken\nfinish"
    ended = recipe(halfway)
    assert ended.returncode == 1 and (tmp_path / "out/done/first").exists()
    assert not (tmp_path / "out/done/third").exists()


def test_tables_are_of_what_all_seeds_have_and_of_what_the_first_alone_has(recipe, tmp_path):
    def scored(*places: str) -> str:
        for place in places:
            (tmp_path / "out" / place).mkdir(parents=True)
            (tmp_path / "out" / place / "scores.json").touch()
        said = recipe('visual-grounding() { echo "$@"; }\nreport_seeds')
        assert said.returncode == 0, said.stderr
        return said.stdout.replace(f"{tmp_path}/out/", "")

    both = "report runs seed1 {}--only scores/a scores/b --out table\n"
    assert scored("seed1/scores/a", "seed1/scores/b") == both.format("")
    (tmp_path / "out/seed2/scores/c.partial").mkdir(parents=True)
    table = "report runs seed1 seed2 --only scores/b --out table\n"
    assert scored("seed2/scores/b") == table + "report runs seed1 --only scores/a --out table-seed1\n"
    assert scored("seed2/scores/a") == both.format("seed2 ")


def test_temporary_files_go_with_the_recipe_and_a_preload_of_the_user_stays(recipe):
    ended = recipe('test -d "$temporary"; echo "$temporary"')
    assert ended.returncode == 0 and not Path(ended.stdout.strip()).exists()
    kept = recipe('echo "${LD_PRELOAD:-none}"', LD_PRELOAD="libm.so.6")
    assert kept.stdout.strip() == "libm.so.6"
