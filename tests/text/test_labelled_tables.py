"""Tables of labelled sentences: each release's names, what is left out and counted, what is refused."""

import gzip
import json

import pytest

from visual_grounding.errors import InputError
from visual_grounding.text.labelled_tables import TableChoices, read_table
from visual_grounding.text.labelled_text import LabelledText


def table(folder, text, name="rows.tsv"):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def read(path, task, **choices):
    found, values = read_table(path, task, TableChoices(**choices))
    return [(*each.texts, *each.answer) for each in found.examples], values, dict(found.remarks)


@pytest.mark.parametrize(
    ("task", "text", "rows"),
    [
        ("snli", "gold_label\tx\tsentence1\tsentence2\nneutral\t( a\tA b.\tC d.\n", [("A b.", "C d.", "neutral")]),
        ("snli", "premise\thypothesis\tlabel\na\tb\t0\nc\td\t1\n", [("a", "b", "entailment"), ("c", "d", "neutral")]),
        ("snli", "premise\thypothesis\tlabel\na\tb\t2\n", [("a", "b", "contradiction")]),
        ("sick", "pair_ID\tsentence_A\tsentence_B\tentailment_label\n1\ta\tb\tNEUTRAL\n", [("a", "b", "NEUTRAL")]),
        ("rte", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n", [("a", "b", "not_entailment")]),
        ("rte", "sentence1\tsentence2\tlabel\na\tb\t0\n", [("a", "b", "entailment")]),
        ("glue", "index\tquestion\tsentence\tlabel\n0\ta\tb\tentailment\n", [("a", "b", "entailment")]),
        ("glue", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta\tb\t1\n", [("a", "b", "1")]),
        ("glue", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t2\t3\ta\tb\n", [("a", "b", "1")]),
        ("glue", "sentence\tlabel\na\t1\n", [("a", "1")]),
        ("glue", 'index\tsentence1\tsentence2\tscore\n0\ta "q\tb\t4.25\n', [('a "q', "b", "4.25")]),
        ("pdtb", "arg1\targ2\tmajoritylabel_sampled\na\tb\treason\n", [("a", "b", "reason")]),
    ],
)  # fmt: skip
def test_releases_are_read_by_the_names_of_their_columns(task, text, rows, tmp_path):
    found, values, remarks = read(table(tmp_path, "\ufeff" + text), task)
    assert found == rows and values == ("score" in text) and not remarks


def test_the_first_of_several_names_is_that_of_the_second_sentence(tmp_path):
    for columns, row in (("hypothesis\tsentence2", "b\tc"), ("sentence2\thypothesis", "c\tb")):
        rows, _, _ = read(table(tmp_path, f"premise\t{columns}\tlabel\na\t{row}\t0\n"), "snli")
        assert rows == [("a", "c", "entailment")]


def test_csv_has_quotes_and_json_lines_names(tmp_path):
    text = 'CONTEXT,HYPOTHESIS,LABEL,SUBSET\n"A dog, ""Rex""\nruns.",It sits.,4,SNLI\nx,y,0,SNLI\nu,v,2,COPA\n'
    rows, values, remarks = read(table(tmp_path, text, "j.csv"), "joci", only={"SUBSET": "SNLI"})
    assert rows == [('A dog, "Rex" runs.', "It sits.", "4")] and values
    assert sorted(remarks.values()) == [1, 1] and any("from 1 to 5" in remark for remark in remarks)
    lines = "".join(
        json.dumps({"gold_label": label, "sentence1": "a", "sentence2": "b"}) + "\n" for label in ("-", "neutral")
    )
    rows, _, remarks = read(table(tmp_path, lines, "s.jsonl"), "snli")
    assert rows == [("a", "b", "neutral")] and list(remarks.values()) == [1]


def test_text_is_text_and_each_column_is_read_once(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "gold_label": "x", "annotators": ["x", "y"], "by": {"x": 1}}]

    def refused(change, message, **choices):
        lines = "".join(json.dumps(row) + "\n" for row in [*rows, {**rows[0], **change}])
        with pytest.raises(InputError, match=message):
            read(table(tmp_path, lines, "s.jsonl"), "snli", **choices)

    assert read(table(tmp_path, json.dumps(rows[0]), "s.jsonl"), "snli")[0] == [("a", "b", "x")]
    refused({"sentence2": ["b", "c"]}, r"s\.jsonl:2 should have text in column sentence2, but has a list")
    refused({"gold_label": {"x": 1}}, r"s\.jsonl:2 should have text in column gold_label, but has an object")
    twice = ("sentence1", "sentence1", "gold_label")
    refused({}, "columns of sentences and answer should differ, but are sentence1, sentence1, gold", columns=twice)


def test_rows_without_an_answer_are_left_out_where_that_is_what_it_means(tmp_path):
    path = table(tmp_path, "premise\thypothesis\tlabel\na\tb\t-1\na\tb\t0\n")
    assert [len(read(path, "snli")[0]), len(read(path, "glue")[0])] == [1, 1]
    numbers = table(tmp_path, "sentence1\tsentence2\tscore\na\tb\t-1\na\tb\t0\n", "n.tsv")
    assert len(read(numbers, "glue")[0]) == 2
    assert len(read(path, "glue", columns=("premise", "label"))[0]) == 2
    assert len(read(path, "snli", columns=("premise", "hypothesis", "label"))[0]) == 1
    assert read(path, "rte", columns=("premise", "hypothesis", "label"))[0] == [("a", "b", "entailment")]
    other = table(tmp_path, "question\tpassage\tis_yes\na\tb\t-1\na\tb\t1\n", "o.tsv")
    assert [row[2] for row in read(other, "rte", columns=("question", "passage", "is_yes"))[0]] == ["-1", "1"]
    (tmp_path / "s.jsonl").write_text('{"gold_label": null, "sentence1": "a", "sentence2": "b"}\n' * 2)
    with pytest.raises(InputError, match="none of its 2 has"):
        read(tmp_path / "s.jsonl", "snli")


def test_columns_that_are_read_are_said(tmp_path):
    path = table(tmp_path, "question\tpassage\tlabel\na\tb\t1\n")
    found, _ = read_table(path, "glue", TableChoices())
    assert found.columns == "question -> label; not read: passage"


def test_columns_of_several_files_are_all_said(tmp_path):
    found = LabelledText()
    for header in ("question\tlabel", "sentence\tlabel", "question\tlabel"):
        found.add(read_table(table(tmp_path, f"{header}\na\t1\n"), "glue", TableChoices())[0])
    assert found.columns == "question -> label\nsentence -> label" and len(found.examples) == 3


def test_rows_that_nobody_asked_for_are_told_by_what_they_have(tmp_path):
    path = table(tmp_path, "CONTEXT,HYPOTHESIS,LABEL,SUBSET\na,b,4,SNLI\n", "j.csv")
    with pytest.raises(
        InputError, match=r"should have rows with SUBSET=snli, but none of its 1 has: one has SUBSET=SNLI"
    ):
        read(path, "joci", only={"SUBSET": "snli"})


def test_compressed_tables_are_what_their_names_say(tmp_path):
    with gzip.open(tmp_path / "j.csv.gz", "wt") as file:
        file.write('CONTEXT,HYPOTHESIS,LABEL\n"a, b",c,3\n')
    assert read(tmp_path / "j.csv.gz", "joci")[0] == [("a, b", "c", "3")]


def test_names_of_columns_are_no_example(tmp_path):
    with pytest.raises(InputError, match="as they are chosen by number, but has premise, hypothesis, label"):
        read(table(tmp_path, "premise\thypothesis\tlabel\na\tb\t1\n"), "glue", columns=("1", "2", "3"))


def test_columns_are_chosen_by_name_or_number(tmp_path):
    named = table(tmp_path, "sentence_A\tsentence_B\tentailment_label\trelatedness_score\na\tb\tNEUTRAL\t3.5\n")
    chosen = read(named, "sick", columns=("sentence_A", "sentence_B", "relatedness_score"))
    assert chosen[:2] == ([("a", "b", "3.5")], True)
    bare = table(tmp_path, "x\t5.0\ta\tb\nx\t1.0\tc\td\n", "bare.tsv")
    assert read(bare, "glue", columns=("3", "4", "2"), values=True)[:2] == (
        [("a", "b", "5.0"), ("c", "d", "1.0")],
        True,
    )
    assert read(bare, "glue", columns=("3", "2"))[:2] == ([("a", "5.0"), ("c", "1.0")], False)
    senses = table(tmp_path, "arg1\targ2\tsense\na\tb\tContingency.Cause.Reason\n", "p.tsv")
    assert read(senses, "pdtb", level=2)[0] == [("a", "b", "Contingency.Cause")]


def test_rows_of_another_length_are_left_out_and_counted(tmp_path):
    path = table(tmp_path, "premise\thypothesis\tlabel\na\tb\t0\na\tb\tc\t1\na\t1\n")
    rows, _, remarks = read(path, "snli")
    assert len(rows) == 1 and list(remarks.items()) == [
        (f"of {path} are left out, as they have not as many columns as the first.", 2)
    ]


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("snli", "premise\tlabel\na\t1\n", "have a column sentence2 or hypothesis or text_b, but has premise, label"),
        ("rte", "sentence1\tsentence2\na\tb\n", "should have a column label, but has sentence1, sentence2"),
        ("joci", "CONTEXT\tHYPOTHESIS\tLABEL\na\tb\tlikely\n", "tsv:2 should have a number in column LABEL, but has"),
        ("joci", "CONTEXT\tHYPOTHESIS\tLABEL\na\tb\tnan\n", "tsv:2 should have a number in column LABEL"),
        ("snli", "", "should be a table, but is empty"),
        ("snli", "premise\thypothesis\tlabel\na\tb\t-\n", "none of its 1 has"),
    ],
)  # fmt: skip
def test_what_no_example_can_be_made_of_is_refused(task, text, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read(table(tmp_path, text), task)


@pytest.mark.parametrize("twice", ["sentence1", "sentence2", "label"])
def test_two_columns_of_one_name_are_refused_where_they_are_read(tmp_path, twice):
    names = ["sentence1", "sentence2", "label", "other"]
    rows = "\t".join([*names, "other"]) + "\na\tb\tx\tc\td\n"
    assert read(table(tmp_path, rows), "glue")[0] == [("a", "b", "x")]  # nobody asks for the other
    with pytest.raises(InputError, match=f"should have one column {twice}, but has 2. Rename the others."):
        read(table(tmp_path, "\t".join([*names, twice]) + "\na\tb\tx\tc\td\n"), "glue")


def test_half_a_character_is_refused(tmp_path):
    for line in ('{"sentence1": "a \\ud800", "sentence2": "b", "label": "x"}', '{"sentence1": "a", "\\udfff": "b"}'):
        with pytest.raises(InputError, match=r"rows.jsonl:1 should be a JSON object, but isn't: it has half a char"):
            read(table(tmp_path, line + "\n", "rows.jsonl"), "glue")


def test_broken_rows_are_named(tmp_path):
    with pytest.raises(InputError, match=r"j\.csv:2 should be a row of a table"):
        read(table(tmp_path, 'CONTEXT,HYPOTHESIS,LABEL\na,"b"x,3\n', "j.csv"), "joci")
    with pytest.raises(InputError, match=r"s\.jsonl:1 should be a JSON object"):
        read(table(tmp_path, "[1]\n", "s.jsonl"), "snli")
    with pytest.raises(InputError, match=r"s\.jsonl:1 should be a JSON object"):
        read(table(tmp_path, "{\n", "s.jsonl"), "snli")
