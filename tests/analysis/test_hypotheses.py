"""Reading translations: plain text, what fairseq-generate prints, and everything that can be wrong with either."""

from pathlib import Path

import pytest

from visual_grounding.analysis.hypotheses import (
    Translations,
    check_sources,
    check_targets,
    read_hypotheses,
    read_references,
    read_translations,
)
from visual_grounding.cli.main import main
from visual_grounding.errors import InputError


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8"))
    return path


def generated(*numbers: int) -> str:
    """What fairseq-generate prints for these sentences, in this order."""
    return "2024-01-01 10:00:00 | INFO | fairseq_cli.generate | loading\n" + "".join(
        f"S-{i}\ta b\nT-{i}\tziel {i}\nH-{i}\t-0.5\tnoch@@ mal {i}\nD-{i}\t-0.5\tnochmal {i}\nP-{i}\t-0.1 -0.2\n"
        for i in numbers
    )


def test_hypotheses_of_plain_text_are_its_lines(tmp_path: Path) -> None:
    # U+2028 and a form feed are no line ends, an empty line is an empty translation.
    path = write(tmp_path / "plain", "ein Hund\n\nzwei\u2028Hunde\x0c\n")
    assert read_hypotheses(path) == ["ein Hund", "", "zwei\u2028Hunde\x0c"]


def test_hypotheses_of_generate_are_sorted_and_taken_from_detokenised_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path / "out", generated(10, 2, 0, 1, 3, 9, 8, 7, 6, 5, 4) + "Generate test with beam=5: BLEU4 = 1\n"
    )
    assert read_hypotheses(path) == [f"nochmal {i}" for i in range(11)]


def test_hypotheses_of_generate_come_from_h_lines_where_there_are_no_others(tmp_path: Path) -> None:
    path = write(tmp_path / "out", "H-1\t-1e-05\tzwei\nH-0\t-inf\teins\n")
    assert read_hypotheses(path) == ["eins", "zwei"]


def test_hypotheses_of_generate_may_be_empty(tmp_path: Path) -> None:
    path = write(tmp_path / "out", "D-1\t-0.25\t\nD-0\t-0.5\n")
    assert read_hypotheses(path) == ["", ""]


def test_hypotheses_of_generate_keep_the_best_of_an_nbest_list(tmp_path: Path) -> None:
    path = write(tmp_path / "out", "D-1\t-0.1\tbest\nD-1\t-0.9\tworse\nD-0\t-0.2\tgut\nD-0\t-0.3\tschlecht\n")
    assert read_hypotheses(path) == ["gut", "best"]


def test_hypotheses_are_refused_when_ids_are_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "out", generated(6, 0, 2, 3))
    with pytest.raises(
        InputError,
        match=r"from 0 to 6, its highest, but 3 are missing, the first is 1\. .*--required-batch-size-multiple 1",
    ):
        read_hypotheses(path)


def test_hypotheses_are_refused_when_two_runs_are_in_one_file(tmp_path: Path) -> None:
    path = write(tmp_path / "out", generated(1, 0) + generated(1, 0))
    with pytest.raises(InputError, match=r"sentence 1 comes back after other sentences"):
        read_hypotheses(path)


@pytest.mark.parametrize("line", ["ein gro@@ ßer Hund", "ein gro@@", "\u2581ein \u2581gro ßer", "ein gro ##ßer"])
def test_hypotheses_are_refused_when_words_are_still_split(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "plain", f"ein Hund\n{line}\n")
    with pytest.raises(InputError, match=r"1 of 2 sentences have subword marks .* the first is sentence 2: .*ein"):
        read_hypotheses(path)


def test_hypotheses_keep_a_stray_mark_of_the_text_itself(tmp_path: Path) -> None:
    lines = ["ein Hund"] * 40 + ["schreib an foo@@ bitte"]
    assert read_hypotheses(write(tmp_path / "plain", "\n".join(lines) + "\n")) == lines


def test_hypotheses_are_refused_when_unreadable(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing can't be read: No such file"):
        read_hypotheses(tmp_path / "missing")


def test_hypotheses_are_refused_when_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("gut\nM\u00e4dchen\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"latin should be UTF-8, but line 2 has byte 0xe4"):
        read_hypotheses(tmp_path / "latin")


def test_references_are_refused_when_empty(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"refs should hold one reference .* is empty: nothing to compare with"):
        read_references(write(tmp_path / "refs", "\n\n"))


@pytest.mark.parametrize("name", ["--hypothesis", "--reference"])
def test_a_line_of_a_megabyte_is_refused_by_who_scores_it(tmp_path: Path, capsys, name: str) -> None:
    paths = {each: tmp_path / each for each in ("--hypothesis", "--reference")}
    for path in paths.values():
        path.write_text("Ein Hund .\nEine Katze .\n")
    paths[name].write_text("Ein Hund .\n" + "ab ." * 250_000 + "\n")
    assert (
        main(["evaluate", *(str(word) for pair in paths.items() for word in pair), "--out", str(tmp_path / "o")]) == 2
    )
    assert f"{name} should have a sentence a line, but line 2 has 1000000 letters" in capsys.readouterr().err
    paths[name].write_text("Ein Hund .\n" + "ab ." * 25_000 + "\n")
    assert len(read_references(paths[name])[1]) == 100_000


def test_translations_of_generate_bring_their_targets(tmp_path: Path) -> None:
    path = write(tmp_path / "out", generated(1, 0) + "T-2\t\nD-2\t-0.5\tleer\nT-3\tthe end is missing")
    assert read_translations(path) == Translations(
        ["nochmal 0", "nochmal 1", "leer"], {0: "ziel 0", 1: "ziel 1", 2: ""}
    )
    plain = write(tmp_path / "plain", "T-0\tein Text , der so beginnt\n")
    assert read_translations(plain) == Translations(["T-0\tein Text , der so beginnt"], {})


TWELVE = [f"Das Mädchen isst Äpfel, Nr. {i} & mehr." for i in range(12)]


@pytest.mark.parametrize(
    "spelled",
    [
        "Das M\u00e4d@@ chen isst \u00c4p@@ fel , Nr. {} &amp; mehr .",  # subword-nmt on Moses' tokens
        "das madchen isst apfel , nr . {} & mehr .",  # small letters without accents
        "\u2581Das \u2581Ma\u0308d chen \u2581isst \u2581\u00c4p fel , \u2581Nr . \u2581 {} \u2581 & \u2581me hr .",
        "Das Mäd ##chen isst Äpfel , Nr . {} & mehr .",
    ],
)
def test_targets_are_the_references_however_they_are_spelled(spelled: str) -> None:
    targets = {i: spelled.format(i) for i in range(12)}
    assert list(check_targets("out", targets, "ref", TWELVE)) == []
    assert len(list(check_targets("out", {**targets, 3: spelled.format(4)}, "ref", TWELVE))) == 1


def test_targets_of_other_sentences_are_refused_with_the_first_of_them() -> None:
    targets = {i: TWELVE[i] if i < 5 else f"Ein Hund, Nr. {i}, " + 60 * "x" for i in range(12)}
    message = (
        r"out should hold translations of the sentences in ref, but of the targets .* 7 of 12 are other sentences, the "
        r"first is sentence 6: 'Ein Hund, Nr. 5, x{42}…' in out, but 'Das Mädchen isst Äpfel, Nr. 5 & mehr.' in ref\."
    )
    with pytest.raises(InputError, match=message):
        list(check_targets("out", targets, "ref", TWELVE))


def test_targets_of_other_sentences_are_warned_of_when_they_are_half_or_too_few_to_tell() -> None:
    half = {i: TWELVE[i] if i < 6 else "Ein Hund." for i in range(12)}
    (warning,) = check_targets("out", half, "ref", TWELVE)
    assert warning.startswith("6 of 12 targets in out (50.0 %) aren't the reference's, letter for letter; the first is")
    nine = dict.fromkeys(range(9), "Ein Hund.")
    (warning,) = check_targets("out", nine, "ref", TWELVE)
    assert warning.startswith("9 of 9 targets in out (100.0 %)")
    with pytest.raises(InputError, match="9 of 9 are other sentences"):
        list(check_targets("out", nine, "ref", TWELVE[:9]))


def test_targets_with_unknown_words_are_not_compared() -> None:
    unknown = dict.fromkeys(range(12), "Das <<unk>> isst Birnen .")
    assert list(check_targets("out", unknown, "ref", TWELVE)) == []
    with pytest.raises(InputError, match="10 of 10 are other sentences, the first is sentence 3"):
        list(check_targets("out", {**unknown, **dict.fromkeys(range(2, 12), "Birnen .")}, "ref", TWELVE))


def test_sources_that_a_model_was_not_given_are_told_with_their_number(tmp_path: Path) -> None:
    path = write(tmp_path / "out", "S-0\tein Hund\nH-0\t-1\ta dog\nS-1\teine Katze\nH-1\t-1\ta cat\n")
    assert list(check_sources(path, "src", ["Ein Hund", "Eine Katze"])) == []
    (warning,) = check_sources(path, "src", ["Ein Hund", "Ein Pferd"])
    assert warning.startswith("1 of 2 sources in") and "the first is sentence 2" in warning


def test_sources_beyond_the_corpus_are_not_compared(tmp_path: Path) -> None:
    path = write(tmp_path / "out", generated(0, 1, 2))
    assert list(check_sources(path, "test.en", ["a b", "a b"])) == []
    assert len(list(check_sources(path, "test.en", ["a b", "c d"]))) == 1


@pytest.mark.parametrize(("letters", "shown"), [(60, "a" * 60), (61, "a" * 59 + "…")])
def test_long_sentences_are_shown_by_their_beginning(tmp_path: Path, letters: int, shown: str) -> None:
    path = write(tmp_path / "out", generated(0).replace("S-0\ta b", f"S-0\t{'a' * letters}"))
    (said,) = check_sources(path, "test.en", ["b"])
    assert f"'{shown}', but 'b'" in said
