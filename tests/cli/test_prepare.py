"""prepare captions, prepare pieces: what they write, say and refuse; `prepare` alone is captions."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_tokenizers import make_tokenizer

from visual_grounding.cli.main import VERBS, main
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

CAPTIONS = "a.jpg\tA dog.\na.jpg\ta Dog runs\nb.jpg\ttwo cats.\n"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, "".join(line for line in captured.err.splitlines(True) if "lines/s" not in line)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_captions_are_what_prepare_makes_without_a_word(tmp_path, capsys):
    for name in "cde":
        (tmp_path / f"{name}.tsv").write_text(CAPTIONS)
    flags = ["--train", tmp_path / "c.tsv", "--valid", tmp_path / "d.tsv", "--test", tmp_path / "e.tsv"]
    said = [run(capsys, *verb, *flags, "--out", tmp_path / verb[-1]) for verb in (["prepare"], ["prepare", "captions"])]
    assert said[0] == said[1] and said[0][0] == 0
    made = contents(tmp_path / "prepare")
    assert made == contents(tmp_path / "captions")
    digests = {name: hashlib.sha256(text).hexdigest()[:16] for name, text in made.items()}
    tables = dict.fromkeys(("train.tsv", "valid.tsv", "test.tsv"), "d608fa232511a035")
    assert digests == {"dict.txt": "6d98d435340341ee", **tables}  # as version 0.1.0 wrote them


def test_a_test_split_of_an_earlier_run_is_named(tmp_path, capsys):
    for name in "cde":
        (tmp_path / f"{name}.tsv").write_text(CAPTIONS)
    flags = ["prepare", "captions", "--train", tmp_path / "c.tsv", "--valid", tmp_path / "d.tsv", "--out"]
    twice = "warning: 3 of 3 captions of valid (100.0 %) are among those of train, too.\n"
    fresh = run(capsys, *flags, tmp_path / "fresh")
    assert fresh[0] == 0 and fresh[2] == twice
    said = run(capsys, *flags, tmp_path / "out", "--test", tmp_path / "e.tsv")[2]
    of_test = twice.replace("valid", "test")
    assert said == twice + of_test + of_test.replace("train", "valid")
    before = contents(tmp_path / "out")
    assert run(capsys, *flags, tmp_path / "out") == (
        0,
        fresh[1],
        f"{twice}warning: {tmp_path}/out/test.tsv was there before and stays as it was, as there is no --test. Delete "
        "it if it shouldn't be tested on.\n",
    )
    assert contents(tmp_path / "out") == before
    status, printed, said = run(capsys, *flags[:4], "--out", tmp_path / "out")
    assert status == 0 and "--disable-validation" not in printed
    assert said.splitlines()[0].endswith("--valid. Delete it if it shouldn't be validated on.")
    assert contents(tmp_path / "out") == before
    status, printed, said = run(capsys, *flags[:4], "--out", tmp_path / "alone")
    assert (status, said) == (0, "") and printed.endswith("give --valid, or fairseq-train --disable-validation.\n")


def test_captions_and_images_that_two_splits_share_are_counted(tmp_path, capsys):
    (tmp_path / "c.tsv").write_text("a\tone\na\ttwo\nb\tthree\n")
    (tmp_path / "d.tsv").write_text("b\tthree\nc\tone\na\tfour\na\tfive\n")
    (tmp_path / "e.tsv").write_text("c\tsix\n")
    flags = ["--train", tmp_path / "c.tsv", "--valid", tmp_path / "d.tsv", "--test", tmp_path / "e.tsv"]
    assert run(capsys, "prepare", "captions", *flags, "--out", tmp_path / "out")[2].splitlines() == [
        "warning: 1 of 4 captions of valid (25.0 %) are among those of train, too.",
        "warning: 2 of 4 captions of valid (50.0 %) are further ones of images of train.",
        "warning: 1 of 1 captions of test (100.0 %) are further ones of images of valid.",
    ]


@pytest.mark.parametrize("again", ["c.tsv", "link", "./folder/../c.tsv"])
def test_one_file_for_two_splits_is_refused(tmp_path, capsys, again):
    (tmp_path / "folder").mkdir()
    for name in "cd":
        (tmp_path / f"{name}.tsv").write_text(CAPTIONS)
    (tmp_path / "link").symlink_to("c.tsv")
    flags = ["--train", tmp_path / "c.tsv", "--valid", tmp_path / "d.tsv", "--test", f"{tmp_path}/{again}"]
    status, _, error = run(capsys, "prepare", "captions", *flags, "--out", tmp_path / "out")
    assert status == 2 and not (tmp_path / "out").exists() and error.count("\n") == 1
    assert (
        "test should have another file than train, but " in error
        and f"{again.split('/')[-1]} is given for both" in error
    )
    assert "give a copy. See --test and --train" in error


def test_captions_that_lie_in_the_folder_are_not_lost(tmp_path, capsys):
    """Somebody's own `train.tsv`; but a folder's own captions can be prepared where they are."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.tsv").write_text(CAPTIONS * 2)
    (tmp_path / "few.tsv").write_text(CAPTIONS)
    before = contents(data)
    status, _, error = run(capsys, "prepare", "captions", "--train", tmp_path / "few.tsv", "--out", data)
    assert status == 2 and "data should be new, or of an earlier run of this command, but has train.tsv from" in error
    assert contents(data) == before
    assert run(capsys, "prepare", "captions", "--train", data / "train.tsv", "--out", data)[0] == 0
    assert run(capsys, "prepare", "captions", "--train", tmp_path / "few.tsv", "--out", data)[0] == 0
    (data / "train.tsv").unlink()  # a retriever's folder, or fairseq's, with a dictionary of its own
    status, _, error = run(capsys, "prepare", "captions", "--train", tmp_path / "few.tsv", "--out", data)
    assert status == 2 and "but has dict.txt from elsewhere" in error


def test_every_preparation_is_found_in_help(capsys):
    preparations = [verb.partition(" ")[2] for verb in VERBS if verb.startswith("prepare ")]
    assert preparations[:2] == ["captions", "pieces"] and len(preparations) == 10
    with pytest.raises(SystemExit, match="0"):
        main(["prepare", "--help"])
    page = capsys.readouterr().out
    assert all(f"\n  {name} " in page for name in preparations)


@pytest.mark.parametrize("arguments", [["nonsense"], ["--train", "c", "--valid", "c", "--out", "o", "pieces"]])
def test_a_word_that_names_no_preparation_is_refused(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        main(["prepare", *arguments])
    error = capsys.readouterr().err
    wrong = next(word for word in arguments if word in ("nonsense", "pieces"))
    known = "captions, pieces, snli, sick, rte, glue, joci, vua, conll, pdtb"
    assert f"should be one of {known}, and the first word after `prepare`, but is '{wrong}'" in error


@pytest.fixture
def tokenizer(tmp_path) -> Path:
    return make_tokenizer(tmp_path / "tokenizer", "wordpiece")


def test_pieces_and_their_dictionary_are_written_line_by_line(tmp_path, capsys, tokenizer):
    (tmp_path / "train.en").write_bytes("\ufeffA Dog runs.\n\nthe\u00a0u\u0308\r\nlast dog 狗".encode())
    (tmp_path / "train.de").write_text("a\n" * 2500)
    flags = ["--tokenizer", tokenizer, "--text", tmp_path / "train.en", "--text", tmp_path / "train.de"]
    made = []
    for _ in range(2):  # again: the same bytes
        status, out, error = run(capsys, "prepare", "pieces", *flags, "--out", tmp_path / "pieces")
        assert (status, error) == (0, "")
        made.append(contents(tmp_path / "pieces"))
    assert made[0] == made[1]
    assert list(made[0]) == ["dict.txt", "meta.json", "train.de", "train.en"]
    assert made[0]["train.en"].decode() == "a dog run ##s .\n\nt ##h ##e u\nl ##a ##s ##t dog <unk>\n"
    assert made[0]["train.de"] == b"a\n" * 2500
    bridge = TokenizerBridge(str(tokenizer))
    assert made[0]["dict.txt"].decode() == "".join(f"{line}\n" for line in bridge.dictionary_lines())
    signature = f"pieces|tokenizer:{bridge.sha256[:8]}|cut:no|version:"
    assert out.startswith("train.en: 4 lines, 15 pieces, 1 of them unknown\ntrain.de: 2500 lines, 2500 pieces, 0 of")
    assert f"\ndict.txt: {len(bridge)} symbols, fairseq's own included\n{signature}" in out
    meta = json.loads(made[0]["meta.json"])
    text = "A Dog runs.\n\nthe\u00a0u\u0308\nlast dog 狗\n"
    assert meta["files"]["train.en"] == {
        "lines": 4, "pieces": 15, "text_sha256": hashlib.sha256(text.encode()).hexdigest()
    }  # fmt: skip
    assert meta["tokenizer_sha256"] == bridge.sha256 and meta["signature"].startswith(signature)
    assert (meta["format"], meta["version"]) == ("pieces", 1)


def test_long_lines_are_cut_only_when_asked_and_counted(tmp_path, capsys, tokenizer):
    from transformers import BertConfig

    BertConfig(max_position_embeddings=5).save_pretrained(tokenizer)  # three pieces between [CLS] and [SEP]
    (tmp_path / "t").write_text("a a a\na a a a\na a a a a a\n")
    flags = ["prepare", "pieces", "--tokenizer", tokenizer, "--text", tmp_path / "t", "--out", tmp_path / "out"]
    status, out, error = run(capsys, *flags)
    assert status == 0 and (tmp_path / "out/t").read_text() == "a a a\na a a a\na a a a a a\n"
    assert error == (
        "warning: 2 of 3 lines (66.7 %) have more pieces than the 3 that the model has positions for; the longest has "
        "6. Where it reads whole lines, cut them with --max-pieces 3.\n"
    )
    status, out, error = run(capsys, *flags, "--max-pieces", 4)
    assert (tmp_path / "out/t").read_text() == "a a a\na a a a\na a a a\n" and "t: 3 lines, 11 pieces" in out
    assert error.startswith(
        "warning: 1 of 3 lines (33.3 %) were cut after 4 pieces; the longest had 6.\nwarning: 2 of 3"
    )
    status, out, error = run(capsys, *flags, "--max-pieces", 3)
    assert error == "warning: 2 of 3 lines (66.7 %) were cut after 3 pieces; the longest had 6.\n" and "|cut:3|" in out


def test_text_that_names_the_tokenizers_own_symbols_is_counted(tmp_path, capsys, tokenizer):
    (tmp_path / "t").write_text("a [SEP] dog\n[PAD]\n[MASK] a\n[CLS]\na\n")
    status, _, error = run(
        capsys, "prepare", "pieces", "--tokenizer", tokenizer, "--text", tmp_path / "t", "--out", tmp_path / "out"
    )
    assert status == 0 and (tmp_path / "out/t").read_text() == "a </s> dog\n<pad>\n<mask> a\n<s>\na\n"
    assert error == (
        "warning: 3 of 5 lines (60.0 %) name the tokenizer's own first, last or padding symbol, and are read as if it "
        "stood there.\n"
    )


def test_empty_text_is_an_empty_file(tmp_path, capsys, tokenizer):
    (tmp_path / "t").write_text("")
    flags = ["--tokenizer", tokenizer, "--text", tmp_path / "t", "--out", tmp_path / "out"]
    status, out, error = run(capsys, "prepare", "pieces", *flags)
    assert (status, error) == (0, "") and "t: 0 lines, 0 pieces" in out and (tmp_path / "out/t").read_bytes() == b""


def test_text_that_can_be_read_only_once_is_refused(tmp_path, tokenizer):
    flags = ["prepare", "pieces", "--tokenizer", tokenizer, "--out", tmp_path / "out", "--text"]
    script = "import sys\nfrom visual_grounding.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, *map(str, flags), "/dev/stdin"]
    piped = subprocess.run(command, input="a dog\n", capture_output=True, text=True)
    assert (piped.returncode, piped.stdout) == (2, "") and not (tmp_path / "out").exists()
    assert "/dev/stdin should be a file, as it is read twice, but is a pipe or a device. Save it" in piped.stderr
    os.mkfifo(tmp_path / "named")
    named = subprocess.run([*command[:-1], tmp_path / "named"], capture_output=True, text=True, timeout=60)
    assert named.returncode == 2 and f"{tmp_path}/named should be a file" in named.stderr  # nobody waits for it
    (tmp_path / "t").write_text("a dog\n")
    with open(tmp_path / "t") as file:  # a file, whatever its name
        opened = subprocess.run(command, stdin=file, capture_output=True, text=True)
    assert opened.returncode == 0 and (tmp_path / "out/stdin").read_text() == "a dog\n", opened.stderr


@pytest.fixture
def earlier(tmp_path, capsys, tokenizer) -> list[object]:
    """A folder with train.en and valid.en by the tokenizer, and the flags of a run onto it that lack a tokenizer."""
    for name in ("train.en", "valid.en"):
        (tmp_path / name).write_text("a dog\n")
    flags = ["prepare", "pieces", "--out", tmp_path / "out", "--text", tmp_path / "valid.en"]
    assert run(capsys, *flags, tmp_path / "train.en", "--tokenizer", tokenizer)[0] == 0
    return flags


@pytest.mark.parametrize("other", ["tokenizer", "cut"])
def test_pieces_of_two_makings_are_never_in_one_folder(tmp_path, capsys, tokenizer, earlier, other):
    before = contents(tmp_path / "out")
    changed = [make_tokenizer(tmp_path / "other", "bytes")] if other == "tokenizer" else [tokenizer, "--max-pieces", 1]
    status, out, error = run(capsys, *earlier, "--tokenizer", *changed)
    assert (status, out) == (2, "") and error.count("\n") == 1
    old = json.loads(before["meta.json"])["signature"]
    found = f"{tmp_path}/out should hold pieces of one making, but has train.en of an earlier run, made by {old}, and "
    assert found in error and "would add others by pieces|tokenizer:" in error
    assert "Choose another --out, delete that folder, or give those files to --text, too." in error
    assert contents(tmp_path / "out") == before
    (tmp_path / "out/train.en").unlink()  # nothing left that would be stale
    assert run(capsys, *earlier, "--tokenizer", *changed)[0] == 0
    assert list(json.loads((tmp_path / "out/meta.json").read_text())["files"]) == ["valid.en"]
    (tmp_path / "out/train.en").write_text("mine")
    status, _, error = run(capsys, *earlier, tmp_path / "train.en", "--tokenizer", tokenizer)  # all are written anew
    assert status == 0 and contents(tmp_path / "out") == before


def test_pieces_of_one_making_add_up(tmp_path, capsys, tokenizer, earlier):
    before = contents(tmp_path / "out")
    for _ in range(2):  # what an earlier run but one wrote isn't forgotten, either
        assert run(capsys, *earlier, "--tokenizer", tokenizer)[0] == 0
        assert contents(tmp_path / "out") == before
    status, _, error = run(capsys, *earlier, "--tokenizer", make_tokenizer(tmp_path / "other", "bytes"))
    assert status == 2 and "has train.en of an earlier run" in error


def test_nothing_is_added_where_a_run_was_interrupted(tmp_path, capsys, tokenizer, earlier):
    """Which files are of which run isn't known there: `meta.json` may be older than they are."""
    (tmp_path / "out/dict.txt").unlink()
    before = contents(tmp_path / "out")
    status, _, error = run(capsys, *earlier, "--tokenizer", tokenizer)
    assert status == 2 and contents(tmp_path / "out") == before
    assert "out should be whole before files are added to it, but has no dict.txt: a command that wrote there" in error
    assert run(capsys, *earlier, tmp_path / "train.en", "--tokenizer", tokenizer)[0] == 0  # all of them


def test_a_making_that_came_meanwhile_is_noticed(tmp_path, capsys, tokenizer, earlier, monkeypatch):
    """Another process writes the folder after this one has looked at it, and before this one locks it."""
    from visual_grounding.storage import whole_folder

    (tmp_path / "out").rename(tmp_path / "aside")
    lock = whole_folder._lock

    def late(beside):
        (tmp_path / "aside").rename(tmp_path / "out")
        return lock(beside)

    monkeypatch.setattr(whole_folder, "_lock", late)
    before = contents(tmp_path / "aside")
    status, _, error = run(capsys, *earlier, "--tokenizer", make_tokenizer(tmp_path / "other", "bytes"))
    assert status == 2 and "has train.en of an earlier run" in error and contents(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (
            '{"format": "feature-store", "version": 1}',
            "out should be new, or .* but holds a feature store.",
        ),
        ('{"format": "pieces"}', "out/meta.json should be the JSON description of pieces, but is broken: KeyError"),
        (
            '{"format": "pieces", "version": 1, "signature": "", "tokenizer_sha256": "", "files": 3}',
            "out/meta.json should have a table as 'files', but has 3. Delete",
        ),
    ],
)
def test_a_folder_that_holds_something_else_is_not_written_into(tmp_path, capsys, earlier, tokenizer, meta, message):
    (tmp_path / "out/meta.json").write_text(meta)
    before = contents(tmp_path / "out")
    status, _, error = run(capsys, *earlier, "--tokenizer", tokenizer)
    assert status == 2 and re.search(message, error), error
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("texts", "flags", "message"),
    [
        (["a/t", "b/t"], [], "files of --text should have names of their own, .* but .*a/t and .*b/t have the same"),
        (["a/dict.txt"], [], "a/dict.txt should be called otherwise: .*out/dict.txt has a meaning of its own"),
        (["a/meta.json"], [], "a/meta.json should be called otherwise: .*out/meta.json has a meaning of its own"),
        (["out/t"], [], "out should be another folder than that of .*out/t, which would be overwritten"),
        (["a/t"], ["--max-pieces", 0], "--max-pieces should be at least 1, but is 0"),
        (["a/none"], [], "a/none can't be read: No such file"),
        (["a/t"], ["--tokenizer", "/nowhere"], "tokenizer '/nowhere' should be a folder with a pretrained model, or"),
        (["a/t", "a/latin"], [], "a/latin should be UTF-8, but line 2 has byte 0xe4 at column 2"),
    ],
)
def test_prepare_pieces_refuses(tmp_path, capsys, tokenizer, texts, flags, message):
    for name in ("a/t", "b/t", "a/dict.txt", "a/meta.json", "out/u" if "a/latin" in texts else "out/t"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a\n")
    (tmp_path / "a/latin").write_bytes(b"a\nb\xe4\n")
    before = contents(tmp_path / "out")
    command = ["--tokenizer", tokenizer, "--text", *(tmp_path / name for name in texts), "--out", tmp_path / "out"]
    status, _, error = run(capsys, "prepare", "pieces", *command, *flags)
    assert status == 2 and error.count("\n") == 1
    assert re.search(message, error), error
    assert contents(tmp_path / "out") == before


KILLED = """
import os, signal, sys
import visual_grounding.text.piece_files as piece_files
from visual_grounding.cli.main import main

cut_lines = piece_files.PieceFile.cut_lines
def kill(self, *arguments):
    for number, line in enumerate(cut_lines(self, *arguments)):
        if number == 1500:
            os.kill(os.getpid(), signal.SIGKILL)
        yield line
piece_files.PieceFile.cut_lines = kill
main(sys.argv[1:])
"""


def test_killed_between_lines_it_leaves_no_dictionary_and_a_rerun_completes_it(tmp_path, capsys, tokenizer):
    (tmp_path / "t").write_text("a\n" * 2000)
    flags = ["prepare", "pieces", "--tokenizer", tokenizer, "--text", tmp_path / "t", "--out"]
    killed = subprocess.run([sys.executable, "-c", KILLED, *map(str, flags), tmp_path / "out"], capture_output=True)
    assert killed.returncode == -9, killed.stderr
    assert not (tmp_path / "out").exists() and os.listdir(tmp_path / "out.being-written") == ["t"]
    assert run(capsys, *flags, tmp_path / "out")[0] == run(capsys, *flags, tmp_path / "whole")[0] == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_prepare_pieces_needs_no_fairseq(tmp_path, tokenizer):
    (tmp_path / "t").write_text("a dog\n")
    flags = ["prepare", "pieces", "--tokenizer", tokenizer, "--text", tmp_path / "t", "--out", tmp_path / "out"]
    script = "import sys; sys.modules['fairseq'] = None\nfrom visual_grounding.cli.main import main\nmain(sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", script, *map(str, flags)], capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "out/t").read_text() == "a dog\n", done.stderr
