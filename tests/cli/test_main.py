"""The command itself: quick to answer, no fairseq where none is needed, one line for a mistake."""

import errno
import os
import pickle
import resource
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from commands import run_command
from conftest import REPOSITORY

import visual_grounding
from visual_grounding.cli import average, import_
from visual_grounding.cli.main import VERBS, main
from visual_grounding.diagnosis import environment
from visual_grounding.errors import InputError, warn


def run_without(blocked: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a fresh process in which `blocked` can't be imported."""
    script = f"""
import sys
for name in {blocked.split()!r}:
    sys.modules[name] = None
from visual_grounding.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
    return subprocess.run([sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True)


def test_help_and_user_dir_import_nothing_heavy():
    done = run_without("torch numpy fairseq transformers PIL matplotlib", "user-dir")
    assert (done.returncode, done.stdout.strip()) == (0, str(Path(visual_grounding.__file__).parent)), done.stderr
    done = run_without("torch numpy fairseq transformers PIL matplotlib", "--help")
    assert done.returncode == 0 and all(verb in done.stdout for verb in VERBS), done.stderr


@pytest.mark.parametrize(
    "words",
    [["visual-grounding", "--help"], ["visual-grounding", "user-dir"], ["python", "-c", "import visual_grounding"]],
)
def test_help_user_dir_and_import_take_less_than_a_second(words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run_command(*words, fresh=True).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)  # of processor time: others may keep the machine busy
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_without_importing_anything_heavy(verb):
    done = run_without("torch fairseq transformers matplotlib", verb, "--help")
    assert done.returncode == 0 and f"visual-grounding {verb}" in done.stdout, done.stderr


def test_run_as_a_module_needs_no_fairseq():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "visual_grounding", "user-dir"], capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert b"visual_grounding.cli.main" in done.stderr and b" fairseq\n" not in done.stderr


def test_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"visual-grounding {visual_grounding.__version__}\n"


def test_quiet_shows_no_progress_and_the_same_result(tmp_path, capsys):
    np.save(tmp_path / "arrays.npy", np.ones((3, 2), dtype=np.float32))
    (tmp_path / "keys.txt").write_text("a\nb\nc\n")
    flags = ["import", "--arrays", str(tmp_path / "arrays.npy"), "--keys", str(tmp_path / "keys.txt"), "--out"]
    assert main([*flags, str(tmp_path / "quiet"), "--quiet"]) == 0
    quiet = capsys.readouterr()
    assert main([*flags, str(tmp_path / "loud")]) == 0
    loud = capsys.readouterr()
    assert "3/3 images" in loud.err and quiet.err == ""
    assert quiet.out == loud.out.replace("loud", "quiet") != ""


def test_a_name_that_is_too_long_is_said_in_one_short_line(tmp_path, capsys):
    np.save(tmp_path / "arrays.npy", np.ones((1, 2), dtype=np.float32))
    (tmp_path / "keys.txt").write_text("a\n")
    flags = ["import", "--arrays", str(tmp_path / "arrays.npy"), "--keys", str(tmp_path / "keys.txt"), "--out"]
    assert main([*flags, str(tmp_path / ("\x1b[2J" + "b" * 5000 + "end"))]) == 2
    said = capsys.readouterr().err
    assert said.startswith("visual-grounding import: /") and said.endswith("bend: File name too long.\n")
    assert len(said) < 400 and "\x1b" not in said


def test_a_word_that_is_empty_is_refused(capsys):
    assert main(["index", "--retriever", "", "--image-features", "x"]) == 2
    said = "visual-grounding index: what stands behind --retriever is empty: it may be a variable that isn't set.\n"
    assert capsys.readouterr().err == said
    assert main(["report", "runs", "", "--out", "table"]) == 2
    assert "what stands behind report runs is empty" in capsys.readouterr().err


def test_a_zero_byte_among_the_words_is_no_name_of_a_file(capsys):
    assert main(["report", "runs", "a\0b", "--out", "table"]) == 2
    assert capsys.readouterr().err == "visual-grounding report runs: 'a\\x00b' holds a zero byte: it names no file.\n"


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOENT, "No such file", "bug.py"), OSError(errno.EACCES, "denied"), OSError("anything")]
)
def test_other_errors_of_the_system_keep_their_traceback(monkeypatch, error):
    def fail(_):
        raise error

    monkeypatch.setattr(import_, "run", fail)
    with pytest.raises(OSError) as raised:
        main(["import", "--arrays", "a.npy", "--out", "store"])
    assert raised.value is error


def test_messages_escape_what_files_brought_into_them():
    assert str(InputError("should be a name, but is 'a\x1b[2J\u202eb'", "out")).endswith("'a\\x1b[2J\\u202eb'")
    assert "Straße – 95 % …" in str(InputError("Straße – 95 % …"))
    assert len(str(InputError("should exist: " + "x" * 10**6))) < 400
    assert (
        str(InputError(f"can't be read: {OSError(20, 'Not a directory', 'a/b')}"))
        == "can't be read: Not a directory: 'a/b'"
    )


def test_packages_that_are_too_old_are_told_where_one_fails(monkeypatch, capsys):
    def failing(args):
        raise AttributeError("module 'torch' has no attribute 'uint16'")

    monkeypatch.setattr(average, "run", failing)
    words = ["average", "--checkpoint-dir", "run", "--last", "2", "--out", "out"]
    with pytest.raises(AttributeError):
        main(words)
    monkeypatch.setattr(environment, "installed", lambda name: "2.1.0" if name == "torch" else metadata.version(name))
    assert main(words) == 2
    said = capsys.readouterr().err
    said = said.partition("AttributeError: module 'torch' has no attribute 'uint16'\n")[2]  # behind the traceback
    assert said.startswith("visual-grounding average: module 'torch' has no attribute 'uint16'. Packages should be")
    assert 'torch should be >=2.6, but is 2.1.0. pip install "torch>=2.6"' in said and said.count("\n") == 1

    def taken_for_the_input(args):
        try:
            failing(args)
        except AttributeError as error:
            raise InputError("a retriever should be built, but isn't. Export it again.") from error

    monkeypatch.setattr(average, "run", taken_for_the_input)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "isn't. Export it again. Packages should be others: " in said and "torch should be >=2.6, but is 2." in said
    monkeypatch.setattr(environment, "installed", metadata.version)
    assert main(words) == 2 and capsys.readouterr().err.endswith("Export it again.\n")


def test_unknown_verb_exits_with_2():
    done = run_command("visual-grounding", "retreive")
    assert done.returncode == 2 and "there is no 'retreive'; did you mean retrieve?" in done.stderr
    done = run_command("visual-grounding", "report", "--nonsense")
    assert done.returncode == 2 and "did you mean" not in done.stderr
    for flag, said in (
        ("--quiet", "there is no '--quiet' before a verb; if it is a verb's: visual-grounding VERB --quiet\n"),
        ("--verison", "there is no '--verison' before a verb; did you mean --version?\n"),
    ):
        done = run_command("visual-grounding", flag, "extract")
        assert done.returncode == 2 and done.stderr.endswith(said)
    for words in (["prob", "last-word"], ["nothing-like-it"]):
        done = run_command("visual-grounding", *words)
        assert done.returncode == 2 and "Traceback" not in done.stderr
        assert ("did you mean probe last-word?" in done.stderr) == (words[0] == "prob")


def test_a_folder_whose_name_is_no_text_is_written_and_named(tmp_path):
    """A shell gives any bytes, and where the locale is one of UTF-8 Python doesn't print them."""
    np.save(tmp_path / "f.npy", np.ones((2, 3), np.float32))
    (tmp_path / "keys.txt").write_text("a\nb\n")
    script = Path(sys.executable).with_name("visual-grounding")
    words = [script, "import", "--arrays", "f.npy", "--keys", "keys.txt", "--out", b"o\xe9"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 0 and b"\\udce9: 2 images" in done.stdout, done.stderr
    assert (tmp_path / os.fsdecode(b"o\xe9") / "meta.json").is_file()
    # What the encoding of the terminal lacks; and no terminal at all.
    environment["PYTHONIOENCODING"] = "latin-1:strict"
    done = subprocess.run([*words[:-1], "\u732b\xe9"], cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 0 and b"\\u732b\xe9: 2 images" in done.stdout, done.stderr
    closed = subprocess.run(
        ["bash", "-c", '"$@" >&-', "bash", *words[:-1], "closed"], cwd=tmp_path, capture_output=True
    )
    assert closed.returncode == 0 and b"Traceback" not in closed.stderr and (tmp_path / "closed/meta.json").is_file()


def test_a_reader_that_has_enough_ends_the_command_in_silence():
    script = "visual-grounding completion bash 2>err | true; echo ${PIPESTATUS[0]}; cat err; rm err"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", f"cd $(mktemp -d); {script}"], env=environment, capture_output=True, text=True)
    assert done.stdout == "141\n" and done.stderr == ""


def test_interrupted_verb_exits_with_130_and_one_line(monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    for module in (import_, average):
        monkeypatch.setattr(module, "run", interrupt)
    assert main(["import", "--arrays", "a.npy", "--out", "store"]) == 130
    again = "; run the same command again to continue"
    assert capsys.readouterr().err == f"visual-grounding import: interrupted{again}\n"
    assert main(["average", "--out", "averaged", "--inputs", "a.pt"]) == 130
    assert capsys.readouterr().err == "visual-grounding average: interrupted\n"


# An exception in such a function is printed, and the program goes on.
SWALLOWED = """
import os, signal, weakref
number = {1}
gone = weakref.ref(number, lambda _: os.kill(os.getpid(), signal.SIGINT))
del number
print("goes on", file=sys.stderr)
raise KeyboardInterrupt
"""


@pytest.mark.parametrize("program", ["/bin/visual-grounding", "/bin/other"])
def test_ctrl_c_while_the_command_is_imported_is_one_line(program: str) -> None:
    script = f"import sys; sys.argv[0] = {program!r}; import visual_grounding; {SWALLOWED}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    if program == "/bin/other":  # whose matter it is
        assert "Traceback" in done.stderr
    else:
        assert (done.returncode, done.stderr) == (-signal.SIGINT, "visual-grounding: interrupted\n")


def test_ctrl_c_while_the_module_is_imported_is_one_line() -> None:
    script = "import sys; sys.argv[0] = '-m'; sys.orig_argv[1:] = ['-m', NAME]; import visual_grounding\n"
    script += SWALLOWED
    said = {}
    for name in ("visual_grounding", "pytest"):
        words = [sys.executable, "-c", script.replace("NAME", repr(name))]
        said[name] = subprocess.run(words, capture_output=True, text=True).stderr
    assert said["visual_grounding"] == "visual-grounding: interrupted\n" and "Traceback" in said["pytest"]


def test_once_imported_ctrl_c_is_the_verbs() -> None:
    script = "import sys; sys.argv[0] = 'visual-grounding'\nfrom visual_grounding.cli import main, average\n"
    script += "import os, signal\naverage.run = lambda _: os.kill(os.getpid(), signal.SIGINT)\n"
    script += "sys.exit(main.main(['average', '--out', 'averaged', '--inputs', 'a.pt']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "visual-grounding average: interrupted\n")


def test_workers_of_the_command_and_who_ignores_ctrl_c_are_left_alone() -> None:
    script = "import sys, signal; sys.argv[0] = 'visual-grounding'; {}; import visual_grounding\n"
    script += "print(signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN))"
    said = []
    for first in ("pass", "sys.orig_argv[2] = 'from multiprocessing.spawn'", "signal.signal(2, signal.SIG_IGN)"):
        done = subprocess.run([sys.executable, "-c", script.format(first)], capture_output=True, text=True)
        said.append(done.stdout.strip())
    assert said == ["False", "True", "True"]


def test_interrupting_comes_before_anything_that_takes_time() -> None:
    source = (REPOSITORY / "visual_grounding/__init__.py").read_text(encoding="utf-8")
    imports = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert imports[0].startswith("from . import _interrupted")


def test_only_the_first_rank_prints_the_result(monkeypatch, capsys):
    monkeypatch.setattr(import_, "run", lambda _: print("result"))
    for rank, out in (("0", "result\n"), ("1", "")):
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("RANK", rank)
        assert main(["import", "--arrays", "a.npy", "--out", "store"]) == 0
        assert capsys.readouterr().out == out
    monkeypatch.setenv("RANK", "2")
    assert main(["import", "--arrays", "a.npy", "--out", "store"]) == 2
    assert "RANK should be 0 to 1, because WORLD_SIZE is 2, but is 2." in capsys.readouterr().err


def test_flags_of_what_an_error_is_about_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(args: object) -> None:
        raise InputError("the sizes don't fit.", "shard_size", "not_a_flag", "keys")

    monkeypatch.setattr("visual_grounding.cli.import_.run", refuse)
    assert main(["import", "--arrays", "f.npy", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "visual-grounding import: the sizes don't fit. See --shard-size and --keys.\n"
    assert pickle.loads(pickle.dumps(InputError("no", "a_flag"))).choices == ("a_flag",)  # from a worker process


def test_what_files_bring_gives_a_terminal_no_commands(tmp_path, capsys):
    """Names of photos, on stdout; in warnings, which are shortened, too."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a\x1b[31m.jpg").write_bytes(b"no photo")
    assert main(["doctor", "--images", str(tmp_path / "photos")]) != 0
    said = capsys.readouterr().out
    assert "a\\x1b[31m.jpg" in said and "\x1b" not in said and "\n" in said
    warn(f"there is no {'x' * 10_000} \x1b[2J")
    said = capsys.readouterr().err
    assert said.startswith("warning: there is no xxx") and said.endswith("x \\x1b[2J\n") and len(said) < 500
