"""prepare snli, sick, …: what is written, said, shared out, added and refused."""

import json
import os
import re
import zipfile
from pathlib import Path

import pytest
from small_tokenizers import make_tokenizer, minilm

from visual_grounding.cli import prepare_examples
from visual_grounding.cli.main import main
from visual_grounding.storage import text_files
from visual_grounding.storage.lines import read_lines

SICK = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\n"


@pytest.fixture
def files(tmp_path):
    """Where the tables of a test lie, as SICK's."""
    for name, labels in (("train", ["NEUTRAL", "ENTAILMENT", "NEUTRAL"]), ("dev", ["NEUTRAL", "CONTRADICTION"])):
        rows = [f"{n}\tA dog runs.\tIt sits {n}{name}.\t{label}\t{n}.5\n" for n, label in enumerate(labels)]
        (tmp_path / f"{name}.tsv").write_text(SICK + "".join(rows))
    return tmp_path


def run(capsys, *words):
    status = main(["prepare", *map(str, words)])
    said = capsys.readouterr()
    return status, said.out, "".join(line for line in said.err.splitlines(True) if "sentences/s" not in line)


def sick(files, *words, train=True, tokenizer=None):
    given = ["--train", files / "train.tsv"] if train else []
    return ["sick", *given, "--tokenizer", tokenizer or minilm(), "--out", files / "out", *words]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_pairs_are_written_and_counted(files, capsys):
    status, said, warned = run(capsys, *sick(files, "--valid", files / "dev.tsv"))
    assert status == 0 and said.startswith(
        "columns: sentence_A, sentence_B -> entailment_label; not read: pair_ID, relatedness_score\n"
        "train: 3 examples\nvalid: 2 examples\nanswers: ENTAILMENT, NEUTRAL\nprepare|task:sick|tokenizer:"
    )
    assert warned == (
        "warning: 1 of 2 examples of valid (50.0 %) have an answer that no example to train on has, and count as "
        "wrong.\n"
    )
    assert read_lines(files / "out/valid.first") == ["A dog runs."] * 2
    assert read_lines(files / "out/valid.second.pieces") == ["it sits 0 ##dev .", "it sits 1 ##dev ."]
    assert read_lines(files / "out/valid.answers") == ["NEUTRAL", "CONTRADICTION"]
    meta = json.loads((files / "out/meta.json").read_text())
    assert (meta["answers"], meta["labels"], meta["separators"]) == ("classes", ["ENTAILMENT", "NEUTRAL"], 1)
    before = contents(files / "out")
    assert run(capsys, *sick(files, "--valid", files / "dev.tsv"))[0] == 0 and contents(files / "out") == before


def test_a_dictionary_of_something_else_is_not_written_over(files, capsys):
    (files / "out").mkdir()
    (files / "out/dict.txt").write_text("word 1\n")
    status, _, error = run(capsys, *sick(files))
    assert status == 2 and "but has dict.txt from elsewhere, which would be written over" in error
    assert contents(files / "out") == {"dict.txt": b"word 1\n"}


def test_what_a_file_brings_is_shown_without_escapes_and_shortened(files, capsys):
    rows = "".join(f"{n}\tA dog.\tIt sits {n}.\t{label}\t1\n" for n, label in enumerate(["y\x1b[31m", "n" * 100_000]))
    (files / "train.tsv").write_text(SICK.replace("pair_ID", "a\x1b[2J") + rows)
    status, said, _ = run(capsys, *sick(files))
    assert status == 0 and "\x1b" not in said and "y\\x1b[31m" in said and "a\\x1b[2J" in said and len(said) < 4000


def test_splits_are_added_by_the_same_flags_alone(files, capsys, tmp_path):
    assert run(capsys, *sick(files))[0] == 0
    status, said, _ = run(capsys, *sick(files, "--test", files / "dev.tsv", train=False))
    assert status == 0 and "test: 2 examples" in said and "train: as before" in said
    assert set(json.loads((files / "out/meta.json").read_text())["splits"]) == {"train", "test"}
    assert run(capsys, *sick(files))[0] == 0  # the same examples to train on
    (files / "train.tsv").write_text(SICK + "1\ta\tb\tX\t1\n1\tc\td\tY\t1\n")
    status, _, told = run(capsys, *sick(files))
    assert status == 2 and "should hold examples of one making, but has test of an earlier run" in told
    other = make_tokenizer(tmp_path / "other", "wordpiece")
    status, _, told = run(capsys, *sick(files, "--valid", files / "dev.tsv", train=False, tokenizer=other))
    assert status == 2 and "should hold examples of one making" in told
    status, _, told = run(capsys, *sick(files, "--columns", "sentence_A", "sentence_B", "relatedness_score", "--valid",
                                        files / "dev.tsv", train=False))  # fmt: skip
    assert status == 2 and "should hold examples of one making" in told


def test_splits_that_are_added_have_as_many_sentences_and_the_same_answers(files, capsys):
    glue = ["glue", "--tokenizer", minilm(), "--out", files / "out"]
    (files / "pairs.tsv").write_text("sentence1\tsentence2\tlabel\na\tb\tx\nc\td\ty\n")
    (files / "single.tsv").write_text("sentence\tlabel\na\tx\n")
    (files / "scores.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t1\n")
    assert run(capsys, *glue, "--train", files / "pairs.tsv")[0] == 0
    for name, said in (("single", "but are of 1 with classes"), ("scores", "but are of 2 with values")):
        status, _, told = run(capsys, *glue, "--test", files / f"{name}.tsv")
        assert status == 2 and f"should be of 2 sentences with classes to be told, as those to train on, {said}" in told


def test_splits_of_two_runs_at_once_are_both_there(files, capsys, monkeypatch):
    """Another run adds a split between this one's first look and its writing."""
    assert run(capsys, *sick(files))[0] == 0
    whole, others = prepare_examples._check_alike, []

    def meanwhile(*given):
        whole(*given)
        if not others:
            others.append(None)
            others.append(main(["prepare", *map(str, sick(files, "--valid", files / "dev.tsv", train=False))]))

    monkeypatch.setattr(prepare_examples, "_check_alike", meanwhile)
    status, said, _ = run(capsys, *sick(files, "--test", files / "dev.tsv", train=False))
    assert (status, others) == (0, [None, 0]) and "train, valid: as before" in said
    assert set(json.loads((files / "out/meta.json").read_text())["splits"]) == {"train", "valid", "test"}


def test_second_sentences_go_with_the_split_that_had_them(files, capsys):
    assert run(capsys, *sick(files))[0] == 0
    assert (files / "out/train.second.pieces").exists()
    (files / "single.tsv").write_text("sentence\tlabel\na\tx\nb\ty\n")
    words = ["glue", "--tokenizer", minilm(), "--out", files / "out", "--train", files / "single.tsv"]
    assert run(capsys, *words)[0] == 0
    assert sorted(path.name for path in (files / "out").glob("train.*")) == [
        "train.answers", "train.first", "train.first.pieces"
    ]  # fmt: skip


def test_numbers_of_another_column_are_taken(files, capsys):
    words = ["--columns", "sentence_A", "sentence_B", "relatedness_score"]
    status, said, warned = run(capsys, *sick(files, *words, "--valid", files / "dev.tsv"))
    assert status == 0 and "answers" not in said and not warned
    assert read_lines(files / "out/train.answers") == ["0.5", "1.5", "2.5"]
    assert json.loads((files / "out/meta.json").read_text())["answers"] == "values"


def test_many_numbers_as_classes_are_warned_of(files, capsys):
    rows = "".join(f"{n}\tA dog {n}.\tIt sits.\tNEUTRAL\t{n / 8:.3f}\n" for n in range(24))
    (files / "train.tsv").write_text(SICK + rows)
    words = ["glue", "--train", files / "train.tsv", "--tokenizer", minilm(), "--out", files / "many"]
    words += ["--columns", "sentence_A", "sentence_B", "relatedness_score"]
    status, _, warned = run(capsys, *words)
    assert status == 0 and "each is a class of its own, 3.0 another than 3.00: give --values" in warned
    assert run(capsys, *words[:-5], files / "values", *words[-4:], "--values")[::2] == (0, "")


def test_one_file_is_shared_out(files, capsys):
    rows = "".join(f"{n}\tdog {n // 2}\tIt sits.\t{'NEUTRAL' if n % 3 else 'ENTAILMENT'}\t1\n" for n in range(40))
    (files / "all.tsv").write_text(SICK + rows)
    words = ["--all", files / "all.tsv", "--shares", 50, 25, 25]
    status, said, _ = run(capsys, *sick(files, *words, train=False))
    assert status == 0 and "train: 20 examples\nvalid: 10 examples\ntest: 10 examples" in said
    parts = [set(read_lines(files / f"out/{split}.first")) for split in ("train", "valid", "test")]
    assert [len(part) for part in parts] == [10, 5, 5] and len(set.union(*parts)) == 20
    # Another way of sharing would put rows of the test split that stays into the others.
    status, _, told = run(capsys, *sick(files, "--all", files / "all.tsv", "--shares", 50, 50, 0, train=False))
    assert status == 2 and "should hold examples of one making, but has test of an earlier run" in told
    words = ["--all", files / "all.tsv", "--shares", 50, 50, 0, "--out", files / "other"]
    status, said, _ = run(capsys, *sick(files, *words, train=False))
    assert status == 0 and "train: 20 examples\nvalid: 20 examples\n" in said


def test_the_seed_says_who_goes_where(files, capsys):
    rows = "".join(f"{n}\tdog {n}\tIt sits.\t{'NEUTRAL' if n % 3 else 'ENTAILMENT'}\t1\n" for n in range(40))
    (files / "all.tsv").write_text(SICK + rows)
    found = []
    for number, seed in enumerate((1, 1, 2)):
        words = ["--all", files / "all.tsv", "--split-seed", seed, "--out", files / str(number)]
        assert run(capsys, *sick(files, *words, train=False))[0] == 0
        found.append(read_lines(files / f"{number}/train.first"))
    assert found[0] == found[1] and len(found[2]) == 32 and set(found[0]) != set(found[2])


def test_the_flags_of_a_task_choose_words_tags_and_senses(tmp_path, capsys):
    def prepared(task, name, *more):
        words = [task, "--train", tmp_path / name, "--tokenizer", minilm(), "--out", tmp_path / "out" / name, *more]
        status, said, told = run(capsys, *words)
        assert status == 0, told
        return said

    rows = [f"a b,\"[{label}, 1]\",\"['VERB', 'NOUN']\"\n" for label in (1, 0)]
    (tmp_path / "n.csv").write_text("".join(["sentence,label_seq,pos_seq\n", *rows]))
    assert "part_of_speech:VERB" in prepared("vua", "n.csv", "--part-of-speech", "VERB")
    assert read_lines(tmp_path / "out/n.csv/train.words") == ["0", "0"]
    assert read_lines(tmp_path / "out/n.csv/train.answers") == ["1", "0"]
    (tmp_path / "c.txt").write_text("EU NNP B-NP O\nrejects VBZ B-VP O\n")
    assert "answers: B-NP, B-VP, I-NP, I-VP\n" in prepared("conll", "c.txt", "--column", 3)
    (tmp_path / "p.tsv").write_text("arg1\targ2\tsense\na\tb\tA.b.c\nc\td\tA.x.y\n")
    assert "answers: A.b, A.x\n" in prepared("pdtb", "p.tsv", "--level", 2)
    assert "answers: A.b.c, A.x.y\n" in prepared("pdtb", "p.tsv", "--out", tmp_path / "whole")


def test_words_are_asked_of_and_tags_said_aloud(tmp_path, capsys):
    (tmp_path / "v.csv").write_text("sentence,verb_idx,label\nEU rejects it .,1,1\na b .,0,0\n")
    status, said, _ = run(
        capsys, "vua", "--train", tmp_path / "v.csv", "--tokenizer", minilm(), "--out", tmp_path / "v"
    )
    assert status == 0 and "answers: 0, 1" in said and read_lines(tmp_path / "v/train.words") == ["1", "0"]
    rows = [f"a b,\"[0, {label}]\",\"['X', 'NOUN']\"\n" for label in (1, 0)]
    (tmp_path / "n.csv").write_text("".join(["sentence,label_seq,pos_seq\n", *rows]))
    status, said, _ = run(
        capsys, "vua", "--train", tmp_path / "n.csv", "--tokenizer", minilm(), "--out", tmp_path / "n"
    )
    assert status == 0 and read_lines(tmp_path / "n/train.words") == ["1", "1"]
    (tmp_path / "c.txt").write_text("EU I-ORG\nrejects O\n\nit O\n")
    status, said, warned = run(
        capsys, "conll", "--train", tmp_path / "c.txt", "--tokenizer", minilm(), "--out", tmp_path / "c"
    )
    assert status == 0 and "train: 2 examples, 3 words" in said and "answers: B-ORG, I-ORG, O" in said
    assert "1 of 2 sentences (50.0 %)" in warned and "had other tags than BIO has (IOB1 or another scheme)" in warned


def test_examples_that_are_trained_on_are_counted(files, capsys):
    (files / "test.tsv").write_text((files / "train.tsv").read_text() + "9\ta\tb\tNEUTRAL\t1\n")
    warned = run(capsys, *sick(files, "--test", files / "test.tsv"))[2]
    assert warned == "warning: 3 of 4 examples of test (75.0 %) are among those of train, too.\n"
    (files / "valid.tsv").write_text(SICK + "9\ta\tb\tNEUTRAL\t1\n")
    warned = run(capsys, *sick(files, "--test", files / "test.tsv", "--valid", files / "valid.tsv"))[2]
    assert warned.splitlines()[1] == "warning: 1 of 4 examples of test (25.0 %) are among those of valid, too."


def test_examples_that_an_earlier_run_left_to_train_on_are_counted_too(files, capsys):
    (files / "test.tsv").write_text((files / "train.tsv").read_text() + "9\ta\tb\tNEUTRAL\t1\n")
    warning = "warning: 3 of 4 examples of test (75.0 %) are among those of train, too.\n"
    assert run(capsys, *sick(files, "--valid", files / "dev.tsv"))[0] == 0
    assert run(capsys, *sick(files, "--test", files / "test.tsv", train=False))[2] == warning
    assert warning in run(capsys, *sick(files, "--valid", files / "dev.tsv"))[2]  # and the other way round
    assert warning not in run(capsys, *sick(files, "--valid", files / "dev.tsv", train=False))[2]  # said before


def test_words_of_sentences_that_an_earlier_run_left_are_counted_by_sentence(capsys, tmp_path):
    for name, sentences in (("train", ["a b", "c d"]), ("test", ["a b", "e f"])):
        rows = [f"{sentence},\"[{n}, 1]\",\"['NOUN', 'NOUN']\"\n" for n, sentence in enumerate(sentences)]
        (tmp_path / f"{name}.csv").write_text("".join(["sentence,label_seq,pos_seq\n", *rows]))
    words = ["vua", "--tokenizer", minilm(), "--out", tmp_path / "n"]
    assert run(capsys, *words, "--train", tmp_path / "train.csv")[0] == 0
    warned = run(capsys, *words, "--test", tmp_path / "test.csv")[2]
    assert warned == "warning: 2 of 4 examples of test (50.0 %) have a sentence of those of train.\n"


def test_one_file_for_two_splits_is_refused(files, capsys):
    status, _, error = run(capsys, *sick(files, "--valid", files / "dev.tsv", "--test", files / "train.tsv"))
    assert status == 2 and not (files / "out").exists()
    assert f"test should have another file than train, but {files}/train.tsv is given for both. To score" in error


@pytest.mark.parametrize("train", [False, True])
def test_nothing_is_added_where_a_run_was_interrupted(files, capsys, train):
    """Which files are of which run isn't known there: `meta.json` may be older than they are."""
    assert run(capsys, *sick(files, "--valid", files / "dev.tsv"))[0] == 0
    (files / "out/dict.txt").unlink()
    before = contents(files / "out")
    (files / "test.tsv").write_text(SICK + "9\ta\tb\tNEUTRAL\t1\n")
    status, _, error = run(capsys, *sick(files, "--test", files / "test.tsv", train=train))
    assert status == 2 and contents(files / "out") == before
    assert "out should be whole before files are added to it, but has no dict.txt: a command that wrote there" in error
    assert run(capsys, *sick(files, "--valid", files / "dev.tsv"))[0] == 0  # all of it


def test_empty_sentences_are_counted(files, capsys):
    (files / "train.tsv").write_text(SICK + "1\t\tb\tNEUTRAL\t1\n1\ta\tb\tENTAILMENT\t1\n")
    assert "1 of 2 examples of train (50.0 %) have a sentence without a word." in run(capsys, *sick(files))[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--all", "train.tsv"], "either --all or some of --train, --valid and --test should be given"),
        (["--shares", "50", "25", "25"], "rows are shared out where --all names them, but they are named"),
        (["--split-seed", "1"], "rows are shared out where --all names them, .* See --shares and --split-seed"),
        (["--columns", "sentence_A"], "--columns should be two or three, but are 1"),
        (["--only", "x"], "--only should be COLUMN=VALUE, but is x"),
        (["--only", "x=1"], "should have a column x, but has pair_ID"),
        (["--values"], "should have a number in column entailment_label, but has 'NEUTRAL'"),
        (["--valid", "other.tsv"], r"among those of .* ENTAILMENT, NEUTRAL, but none is; the first is z"),
        (["--valid", "one.tsv"], "should have a column sentence_B"),
    ],
)  # fmt: skip
def test_choices_that_cannot_be_are_refused(files, words, message, capsys, monkeypatch):
    monkeypatch.chdir(files)
    (files / "other.tsv").write_text(SICK + "1\ta\tb\tz\t1\n")
    (files / "one.tsv").write_text("sentence_A\tentailment_label\na\tNEUTRAL\n")
    status, _, told = run(capsys, *sick(files, *words))
    assert status == 2 and re.search(message, told), told
    assert not (files / "out").exists()


def test_nothing_to_train_on_is_refused(files, capsys):
    status, _, told = run(capsys, *sick(files, "--valid", files / "dev.tsv", train=False))
    assert status == 2 and "should hold examples to train on, which say what answers there are" in told
    (files / "all.tsv").write_text(SICK + "1\ta\tb\tz\t1\n2\tc\td\ty\t1\n")
    status, _, told = run(capsys, *sick(files, "--all", files / "all.tsv", "--shares", 0, 50, 50, train=False))
    assert status == 2 and "of what is trained on, above 0, but are 0 50 50" in told


def test_answers_of_all_files_are_of_a_kind(files, capsys):
    (files / "a.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t1.5\n")
    (files / "b.tsv").write_text("sentence1\tsentence2\tlabel\na\tb\tx\n")
    words = ["glue", "--train", files / "a.tsv", files / "b.tsv", "--tokenizer", minilm(), "--out", files / "out"]
    status, _, told = run(capsys, *words)
    assert status == 2 and "answers should all be numbers, or all names, but are numbers in" in told
    (files / "a.tsv").write_text("sentence\tlabel\na\tx\n")
    status, _, told = run(capsys, *words)
    assert status == 2 and "all files should have one sentence a row, or all two" in told


@pytest.mark.parametrize("name", ["meta.json", "train.first", "train.words"])
def test_a_run_that_is_stopped_leaves_the_older_files(name, tmp_path, capsys, monkeypatch):
    (tmp_path / "c.txt").write_text("EU B-ORG\nit O\n")
    words = ["conll", "--train", tmp_path / "c.txt", "--tokenizer", minilm(), "--out", tmp_path / "out"]
    assert run(capsys, *words)[0] == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    (tmp_path / "c.txt").write_text("EU B-PER\nwas O\n")
    original = text_files.write_lines

    def stopping(path, lines):
        if path.name == name:
            raise KeyboardInterrupt
        original(path, lines)

    monkeypatch.setattr(text_files, "write_lines", stopping)
    assert main(["prepare", *map(str, words)]) == 130
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert sorted(os.listdir(tmp_path)) == ["c.txt", "out"]
    monkeypatch.undo()
    assert run(capsys, *words)[0] == 0
    after = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert after.keys() == before.keys() and after["train.first"] != before["train.first"]


@pytest.mark.data
def test_real_files_of_every_task(real_data, tmp_path, capsys):
    """Counts as the data's own README has them; JOCI's part as GS has it, within a few."""
    data = real_data / "downstream"
    with zipfile.ZipFile(data / "joci/joci.csv.zip") as packed:
        joci = Path(packed.extract("joci.csv", tmp_path))
    pdtb = sorted((data / "discogem_substitute_for_pdtb").glob("*_wide.tsv"))
    for words, said in (
        (["sick", "--train", data / "sick/SICK_train.txt"], ["train: 4439"]),
        (["rte", "--all", data / "rte/train.tsv"], ["train: 199", "answers: entailment, not_entailment"]),
        (["pdtb", "--all", *pdtb], ["train: 720", "test: 90"]),
        (["vua", "--train", data / "vua/VUA_formatted_val.csv"], ["train: 1724"]),
        (["vua", "--train", data / "vua/VUA_seq_formatted_val.csv"], ["train: 6859"]),
        (["conll", "--train", data / "conll2003/eng.testa"], ["train: 3250 examples, 51362 words"]),
        (["snli", "--train", data / "snli/sample_dev.tsv", "--valid", data / "snli/dev.tsv"], ["1000", "valid: 9842"]),
        (["glue", "--train", data / "qnli/sample_dev.tsv"], ["train: 1000", "entailment, not_entailment"]),
        (["glue", "--train", data / "mrpc/msr-para-val.tsv"], ["train: 500"]),
        (["glue", "--train", data / "sst2/dev.tsv"], ["train: 872"]),
        (["joci", "--all", joci, "--only", "SUBSET=SNLI"], ["train: 2356", "valid: 296", "test: 293"]),
        (["glue", "--train", data / "qqp/quora_bimpm_test.txt", "--columns", 1, 2, 3], ["train: 10000"]),
    ):  # fmt: skip
        status, printed, told = run(
            capsys, *words, "--tokenizer", minilm(), "--out", tmp_path / str(words[2]).replace("/", "-")
        )
        assert status == 0, told
        assert all(each in printed for each in said), printed


def test_every_task_says_its_files():
    from visual_grounding.cli.main import MODULES, VERBS

    tasks = [verb.partition(" ")[2] for verb, file in MODULES.items() if file == "prepare_examples"]
    assert all(f"prepare {task}" in VERBS and f"\n  {task} " in (prepare_examples.__doc__ or "") for task in tasks)


def test_verbs_and_nouns_are_not_mixed(tmp_path, capsys):
    (tmp_path / "verbs.csv").write_text("sentence,verb_idx,label\nA dog eats time .,2,1\nA dog eats bread .,2,0\n")
    words = (
        "sentence,label_seq,pos_seq\n"
        + "A dog eats time .,\"[0, 0, 1, 1, 0]\",\"['DET', 'NOUN', 'VERB', 'NOUN', '.']\"\n"
    )
    (tmp_path / "words.csv").write_text(words)
    flags = ["--tokenizer", minilm(), "--out", tmp_path / "out"]
    status, said, _ = run(capsys, "vua", "--train", tmp_path / "verbs.csv", *flags)
    assert status == 0 and "part_of_speech:VERB" in said
    status, _, error = run(capsys, "vua", "--test", tmp_path / "words.csv", *flags)
    assert status == 2 and "part_of_speech:NOUN" in error
    assert run(capsys, "vua", "--test", tmp_path / "words.csv", "--part-of-speech", "VERB", *flags)[0] == 0
    flags[-1] = tmp_path / "other"
    status, _, error = run(capsys, "vua", "--train", tmp_path / "words.csv", "--valid", tmp_path / "verbs.csv", *flags)
    assert status == 2 and "verbs.csv names a verb in each row, so there is no NOUN to ask of" in error


@pytest.mark.parametrize(("word", "said"), [("[SEP]", 2), ("[PAD]", 2), ("[MASK]", 0), ("SEP", 0), ("[UNK]", 0)])
def test_sentences_that_name_the_tokenizers_own_symbols_are_counted(files, capsys, word, said):
    path = files / "train.tsv"
    path.write_text(path.read_text().replace("A dog runs", f"A {word} runs", 2))
    status, _, error = run(capsys, *sick(files))
    assert status == 0
    assert ("2 of 6 sentences (33.3 %) name the tokenizer's own first, last or padding symbol" in error) == bool(said)
