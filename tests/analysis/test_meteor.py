"""METEOR is a Java program of others: here a fake `java` stands in for it."""

import os
from pathlib import Path

import pytest

from visual_grounding.analysis.meteor import meteor, read_meteor_score
from visual_grounding.errors import InputError


def fake_java(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Put a `java` that runs `script` first on the PATH; returns a jar for it."""
    folder.mkdir()
    (folder / "java").write_text("#!/bin/sh\n" + script)
    (folder / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    jar = folder / "meteor-1.5.jar"
    jar.write_bytes(b"")
    return jar


def test_meteor_score_is_the_final_line_and_no_segment() -> None:
    printed = "Meteor version: 1.5\n\nSegment 1 score:\t0.9000\nScore:  0.1\nFinal score:  0.6070\n"
    assert read_meteor_score(printed) == 60.7
    assert read_meteor_score("Segment 1 score:\t0.9000\n") is None


def test_meteor_gets_normalised_white_space_and_the_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    jar = fake_java(
        tmp_path / "bin", monkeypatch, f'echo "$@" > {seen}\ncat "$5" "$6" >> {seen}\necho "Final score: 0.25"\n'
    )
    assert meteor(["Ein\rHund.", ""], ["Ein Hund.", "Zwei  Hunde."], jar, "de") == 25.0
    command, *lines = seen.read_text().split("\n")
    assert command.startswith(f"-Xmx2G -Dfile.encoding=UTF-8 -jar {jar} ")
    assert command.endswith("-l de -norm")
    assert lines == ["Ein Hund.", "", "Ein Hund.", "Zwei Hunde.", ""]


def test_meteor_says_what_the_program_said_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'echo "Exception: Unknown language (qq)" >&2\necho "at Main" >&2\nexit 1\n'
    jar = fake_java(tmp_path / "bin", monkeypatch, script)
    with pytest.raises(InputError, match=r"language qq\) .* status 1 and said: Exception: Unknown language \(qq\)$"):
        meteor(["a"], ["a"], jar, "qq")


def test_meteor_is_refused_when_no_score_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = fake_java(tmp_path / "bin", monkeypatch, "exit 0\n")
    with pytest.raises(InputError, match=r"should print a `Final score:`, but ended with status 0 and said: nothing"):
        meteor(["a"], ["a"], jar, "de")


def test_meteor_is_refused_when_java_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "meteor-1.5.jar"
    jar.write_bytes(b"")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"METEOR needs Java, but `java` can't be started: No such file"):
        meteor(["a"], ["a"], jar, "de")


def test_meteor_is_refused_when_the_jar_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--meteor-jar should be .* there is no file .*nothing.jar"):
        meteor(["a"], ["a"], tmp_path / "nothing.jar", "de")
