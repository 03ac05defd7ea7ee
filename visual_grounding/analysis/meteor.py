"""METEOR 1.5 (Denkowski and Lavie, 2014), by its authors' Java program, which users fetch themselves.

It isn't reimplemented: its stemmers, synonyms and paraphrase tables are the metric.
"""

import re
import subprocess
import tempfile
from pathlib import Path

from ..errors import InputError

_FINAL_SCORE = re.compile(r"^Final score:\s+(\d+(?:\.\d+)?(?:[eE]-?\d+)?)\s*$", re.MULTILINE)


def read_meteor_score(output: str) -> float | None:
    """The corpus score, 0..100, in what METEOR prints; None if there is none.

    >>> read_meteor_score("Segment 1 score:\\t0.5\\n\\nSystem level statistics:\\n\\nFinal score:            0.4321\\n")
    43.21
    >>> read_meteor_score("Meteor version 1.5\\nUsage: …") is None
    True
    """
    match = _FINAL_SCORE.search(output)
    return round(100 * float(match[1]), 10) if match else None


def meteor(hypotheses: list[str], references: list[str], jar: str | Path, language: str) -> float:
    """Corpus METEOR, 0..100, of detokenised sentences: METEOR normalises and tokenises them itself (`-norm`).

    Args:
        hypotheses: S detokenised translations.
        references: S detokenised references.
        jar: `meteor-1.5.jar`, in its own folder: it looks for its tables there.
        language: target language code, for METEOR's stemmer, tables and weights.

    Raises:
        InputError: there is no such jar, no `java`, or METEOR fails, as it does for a language that it doesn't know.
    """
    if not Path(jar).is_file():
        raise InputError(f"--meteor-jar should be the file meteor-1.5.jar, but there is no file {jar}.")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "hypotheses", Path(folder) / "references"]
        for path, sentences in zip(files, (hypotheses, references)):
            # Java's line reader also ends a line at a lone \r, so any run of white space becomes one space.
            path.write_text("".join(" ".join(sentence.split()) + "\n" for sentence in sentences), encoding="utf-8")
        command = [
            "java",
            "-Xmx2G",
            "-Dfile.encoding=UTF-8",
            "-jar",
            str(jar),
            *map(str, files),
            "-l",
            language,
            "-norm",
        ]
        try:
            done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
        except OSError as error:
            raise InputError(
                f"METEOR needs Java, but `java` can't be started: {error.strerror or error}. Install a Java runtime, "
                "or leave --meteor-jar out."
            ) from error
    score = read_meteor_score(done.stdout)
    if done.returncode or score is None:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[0]
        raise InputError(
            f"METEOR ({jar}, language {language}) should print a `Final score:`, but ended with status "
            f"{done.returncode} and said: {said}"
        )
    return score
