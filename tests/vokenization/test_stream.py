"""Any text is vokenized whole, in order, shard by shard; killed or given to several ranks, it is the same."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from faults.steps import killed_at_each_step
from small_tokenizers import AWKWARD as SPECIAL_LINES
from small_tokenizers import FAMILIES, make_tokenizer

from visual_grounding.errors import InputError
from visual_grounding.storage import growing, shards
from visual_grounding.storage.growing import GrowingArtefact
from visual_grounding.storage.lines import sha256_of_lines
from visual_grounding.storage.ranks import Rank
from visual_grounding.vokenization import stream, text_shards
from visual_grounding.vokenization.candidates import Candidates
from visual_grounding.vokenization.check import check_vokens
from visual_grounding.vokenization.cutting import Cutter
from visual_grounding.vokenization.estimate import estimate
from visual_grounding.vokenization.stream import vokenize
from visual_grounding.vokenization.text_shards import SHARD_LINES, TextReader
from visual_grounding.vokenization.vokenizer import Labels, Vokenizer

LINES = ["A dog runs. It sits!", "", "Two birds  sit on the roof", "the ball's red", "runs", "", "birdsong"]


class Remainders(Vokenizer):
    """A piece's voken is the remainder of its number."""

    method = "remainders"

    def __init__(self, size: int = 7) -> None:
        self.candidates = Candidates(np.arange(size), [f"{number}.jpg" for number in range(size)])
        self.plan = {"size": size}
        self.signed = {"size": size}

    def label_pieces(self, text, shard):
        return Labels((text.numbers % len(self.candidates.keys)).astype(np.int32), text.numbers / 100)


class Others(Remainders):
    """The same with other images."""

    def __init__(self) -> None:
        super().__init__()
        self.candidates = Candidates(np.arange(7), [f"other{number}.jpg" for number in range(7)])


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"), "wordpiece")


@pytest.fixture(scope="module")
def cutter(tokenizer):
    return Cutter(str(tokenizer))


@pytest.fixture
def text(tmp_path):
    return write(tmp_path / "text", LINES)


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("shard_lines", [1, 3, 8192])
def test_vokens_stand_beside_their_pieces(tmp_path, cutter, text, shard_lines):
    found = vokenize(Remainders(), cutter, [text], tmp_path / "out", keep_scores=True, shard_lines=shard_lines)
    numbers = cutter.bridge.numbers_of(LINES)
    assert found.lines == len(LINES) and found.text_sha256 == sha256_of_lines(LINES)
    assert [found.of_line(line).tolist() for line in range(found.lines)] == [[n % 7 for n in each] for each in numbers]
    assert list(found.token_lines()) == [cutter.bridge.line_of(each) for each in numbers]
    assert found.tokens_sha256 == sha256_of_lines(list(found.token_lines()))
    np.testing.assert_allclose(found.scores, np.concatenate(numbers) / 100, rtol=1e-3)
    assert found.counts == {"empty": 2, "sentences": 6, "windowed": 0, "unknown": found.counts["unknown"]}
    assert (
        list(found.keys()) == [f"{number}.jpg" for number in range(7)] and found.bridge().sha256 == cutter.bridge.sha256
    )
    assert "method:remainders|size:7|vokens:7" in found.signature and not (tmp_path / "out.partial").exists()
    assert "7 lines, " in check_vokens(tmp_path / "out", [text])


AWKWARD = [
    *SPECIAL_LINES,
    *["a\x00dog\x07runs", "\x1b[31ma dog", "a\x0b\x0c\x1c\x85\u2028dog", "\x7f", "\t a\t"],  # control characters
    *["\u00a0a\u3000dog\u00a0", "\u200b", "a\u200bdog\u200d", "\ufeffa dog", "\u202ea dog"],  # what separates
    *["\u0301", "a\u0301\u0301\u0301", "\u0301a dog", "cafe\u0301", "\u1100\u1161\u11a8"],  # marks
    *["犬が走る。鳥。", "כלב רץ", "🐕‍🦺 runs 🏳️‍🌈", "\ud7ff\ue000\uffff\U0010ffff", "ﬁsh ½ Å ẞ İ"],
    *["[CLS] a [SEP] dog", "[MASK] [PAD][UNK]", "<s> a </s> <pad>", "##s"],  # names of special pieces
    *["." * 50, "a! " * 40, "?!?!?! a", "...", "   "],  # many sentences, or none
    *["a dog runs. " * 2000, "d" * 5000, "a " * 9000, "dog" * 3000],
]


@pytest.mark.parametrize("family", FAMILIES)
def test_awkward_lines_have_the_pieces_of_their_tokenizer(tmp_path, family):
    cutter = Cutter(str(make_tokenizer(tmp_path / family, family)), window=9)
    path = write(tmp_path / "text", AWKWARD)
    found = vokenize(Remainders(), cutter, [path], tmp_path / "out", shard_lines=8)
    numbers = cutter.bridge.numbers_of(AWKWARD)
    assert [found.of_line(line).tolist() for line in range(found.lines)] == [[n % 7 for n in each] for each in numbers]
    assert list(found.token_lines()) == [cutter.bridge.line_of(each) for each in numbers]
    assert found.counts["empty"] == sum(len(each) == 0 for each in numbers)
    check_vokens(tmp_path / "out", [path])


def test_a_line_of_a_million_letters_is_one_line(tmp_path, cutter):
    lines = ["a dog", "the dog runs. " * 72_000, "a bird", "d" * 1_000_000, "it sits"]
    path = write(tmp_path / "text", lines)
    found = vokenize(Remainders(), cutter, [path], tmp_path / "out", shard_lines=2)
    numbers = cutter.bridge.numbers_of(lines)
    assert found.lines == 5 and found.tokens == sum(map(len, numbers)) > 4 * 72_000
    for line, expected in enumerate(numbers):
        np.testing.assert_array_equal(found.of_line(line), np.asarray(expected) % 7)
    check_vokens(tmp_path / "out", [path])


def test_shards_are_cut_by_lines_and_by_letters(tmp_path, monkeypatch):
    monkeypatch.setattr(text_shards, "SHARD_LETTERS", 10)
    path = write(tmp_path / "text", ["a" * 4, "b" * 5, "c" * 30, "", "d", "e", "f"])
    reader = TextReader([path, path], shard_lines=3)
    sizes = [[len(line) for line in shard.lines] for shard in reader.shards()]
    assert sizes == [[4, 5, 30], [0, 1, 1], [1, 4, 5], [30], [0, 1, 1], [1]]
    assert (reader.lines, reader.letters) == (14, 84)
    assert reader.sha256 == hashlib.sha256(path.read_bytes() * 2).hexdigest()


def test_text_of_several_files_and_of_standard_input_is_one_text(tmp_path, cutter, text, monkeypatch):
    parts = [write(tmp_path / "a", LINES[:3]), write(tmp_path / "b", LINES[3:])]
    expected = content_of(vokenize(Remainders(), cutter, [text], tmp_path / "one", shard_lines=2).folder)
    assert content_of(vokenize(Remainders(), cutter, parts, tmp_path / "two", shard_lines=2).folder) == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.read_bytes())))
    assert content_of(vokenize(Remainders(), cutter, [Path("-")], tmp_path / "in", shard_lines=2).folder) == expected


def test_vokenize_continues_to_the_same_bytes_when_killed_at_any_step(tmp_path, cutter, text):
    expected = content_of(vokenize(Remainders(), cutter, [text], tmp_path / "whole", shard_lines=3).folder)
    out = [tmp_path / "out1"]

    def run() -> None:
        vokenize(Remainders(), cutter, [text], out[-1], shard_lines=3)

    steps = [(growing, "array_header"), (shards, "write_json"), (Path, "rename"), (shards.shutil, "rmtree")]
    killed = 0
    for killed in killed_at_each_step(run, *steps):
        run()
        assert content_of(out[-1]) == expected
        out.append(tmp_path / f"out{killed + 1}")
    assert killed > 15


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")  # the child cuts by a thread of its own
def test_vokenize_by_two_ranks_is_the_same(tmp_path, cutter, text, monkeypatch):
    expected = content_of(vokenize(Remainders(), cutter, [text], tmp_path / "one", shard_lines=2).folder)
    pid = os.fork()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", str(int(pid == 0)))
    if pid == 0:
        code = 1
        try:
            vokenize(Remainders(), cutter, [text], tmp_path / "two", shard_lines=2)
            code = 0
        finally:
            os._exit(code)
    vokenize(Remainders(), cutter, [text], tmp_path / "two", shard_lines=2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert content_of(tmp_path / "two") == expected


def test_ranks_that_read_different_texts_are_refused(tmp_path, cutter, text, monkeypatch):
    other = write(tmp_path / "other", [line.upper() if number == 3 else line for number, line in enumerate(LINES)])
    monkeypatch.setattr(stream, "this_rank", lambda: Rank(0, 1, ""))
    marked = GrowingArtefact.add

    def add(artefact, number, arrays, texts, notes):  # the second part is another rank's, which read another text
        cut = next(shard for shard in TextReader([other], 2).shards() if shard.number == 1)
        marked(artefact, number, arrays, texts, {**notes, "sha256": cut.sha256} if number == 1 else notes)

    monkeypatch.setattr(GrowingArtefact, "add", add)
    with pytest.raises(
        InputError, match=r"all ranks should read the same text, but 1 of 4 parts .* the first is part 2"
    ):
        vokenize(Remainders(), cutter, [text], tmp_path / "out", shard_lines=2)
    assert not (tmp_path / "out").exists()


def test_workers_leave_ctrl_c_to_the_process_that_gives_them_work(cutter):
    with stream._executor(cutter, 1) as pool:
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) != signal.SIG_IGN


@pytest.mark.parametrize("workers", [0, 2])
def test_text_is_cut_while_the_shard_before_is_labelled_and_no_further(tmp_path, cutter, monkeypatch, workers):
    path = write(tmp_path / "long", [f"a dog {number}" for number in range(60)])
    cut, readers = [], []
    monkeypatch.setattr(stream, "_executor", lambda cutter, workers: ThreadPoolExecutor(max(1, workers)))
    monkeypatch.setattr(stream, "_cut", lambda lines, _: cut.append(lines[0]) or cutter.cut(lines))

    class Reader(TextReader):
        def __init__(self, *args):
            super().__init__(*args)
            readers.append(self)

    monkeypatch.setattr(stream, "TextReader", Reader)

    class Slow(Remainders):
        def label_pieces(self, text, shard):
            ahead = 2 * workers + 1
            ends = time.monotonic() + 30
            while shard + ahead < 30 and len(cut) < shard + 1 + ahead and time.monotonic() < ends:
                time.sleep(0.01)
            assert len(cut) >= min(30, shard + 1 + ahead) and readers[0].lines <= 2 * (shard + ahead + 2)
            return super().label_pieces(text, shard)

    vokenize(Slow(), cutter, [path], tmp_path / "out", shard_lines=2, workers=workers)
    assert len(cut) == 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda given: given | {"cutter": Cutter(given["cutter"].tokenizer, window=5)}, "max_pieces was 126, now 5"),
        (lambda given: given | {"cutter": Cutter(given["cutter"].tokenizer, "de")}, "language was 'en', now 'de'"),
        (lambda given: given | {"vokenizer": Others()}, "other images"),
        (lambda given: given | {"keep_scores": True}, "scores was False, now True"),
    ],
)
def test_interrupted_vokens_go_on_by_the_same_choices_alone(tmp_path, cutter, text, change, message):
    interrupt(tmp_path, cutter, text)
    given = {"vokenizer": Remainders(), "cutter": cutter, "keep_scores": False}
    with pytest.raises(InputError, match=message):
        vokenize(text=[text], out=tmp_path / "out", shard_lines=2, **change(given))


def test_interrupted_vokens_go_on_with_the_same_tokenizer_alone(tmp_path, cutter, text):
    interrupt(tmp_path, cutter, text)
    other = Cutter(str(make_tokenizer(tmp_path / "tokenizer", "bytes")), window=cutter.window)
    with pytest.raises(InputError, match="other tokenizer"):
        vokenize(Remainders(), other, [text], tmp_path / "out", shard_lines=2)


def test_vokenize_says_when_it_is_done_already(tmp_path, cutter, text, capsys):
    vokenize(Remainders(), cutter, [text], tmp_path / "out")
    before = content_of(tmp_path / "out")
    vokenize(Remainders(), cutter, [text], tmp_path / "out")
    assert "is there already" in capsys.readouterr().err and content_of(tmp_path / "out") == before


@pytest.mark.parametrize("lines", [[*LINES, "more"], LINES[:-1], ["other", *LINES[1:]]])
def test_finished_vokens_of_another_text_are_refused(tmp_path, cutter, text, lines, capsys):
    vokenize(Remainders(), cutter, [text], tmp_path / "out")
    other = write(tmp_path / "other", lines)
    with pytest.raises(InputError, match=rf"vokens of another text: of 7 lines .* where this one has {len(lines)}"):
        vokenize(Remainders(), cutter, [other], tmp_path / "out")
    assert "is there already" not in capsys.readouterr().err
    with pytest.raises(InputError, match=r"another one|another text"):
        check_vokens(tmp_path / "out", [other])


def interrupt(tmp_path, cutter, text):
    class Failing(Remainders):
        def label_pieces(self, text, shard):
            if shard == 2:
                raise RuntimeError("a worker's own error")
            return super().label_pieces(text, shard)

    with pytest.raises(RuntimeError, match="a worker's own error"):
        vokenize(Failing(), cutter, [text], tmp_path / "out", shard_lines=2)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["other", *LINES[1:]], "begun with another text: somewhere from line 1 on it differs"),
        ([*LINES[:3], "other", *LINES[4:]], "from line 3 on it differs"),
        (LINES[:2], "begun with a longer text: it has 2 parts, this one only 1"),
    ],
)
def test_unfinished_vokens_of_another_text_are_refused(tmp_path, cutter, text, lines, message):
    interrupt(tmp_path, cutter, text)
    with pytest.raises(InputError, match=message):
        vokenize(Remainders(), cutter, [write(tmp_path / "other", lines)], tmp_path / "out", shard_lines=2)


@pytest.mark.parametrize("changed", [{"size": 8}, {"shard_lines": 3}, {"keep_scores": True}, {"language": "de"}])
def test_unfinished_vokens_of_other_choices_are_refused(tmp_path, cutter, tokenizer, text, changed):
    interrupt(tmp_path, cutter, text)
    options = {
        "shard_lines": 2,
        **{name: value for name, value in changed.items() if name in ("shard_lines", "keep_scores")},
    }
    other = Cutter(str(tokenizer), changed.get("language", "en"))
    with pytest.raises(InputError, match="was made with other choices"):
        vokenize(Remainders(changed.get("size", 7)), other, [text], tmp_path / "out", **options)


def test_what_is_done_is_not_done_again(tmp_path, cutter, text, monkeypatch):
    interrupt(tmp_path, cutter, text)
    cut = []
    monkeypatch.setattr(stream, "_cut", lambda lines, _: cut.append(lines) or cutter.cut(lines))
    vokenize(Remainders(), cutter, [text], tmp_path / "out", shard_lines=2)
    assert cut == [LINES[4:6], LINES[6:]]


def test_a_failing_cutter_ends_the_run_with_its_error(tmp_path, cutter, text, monkeypatch):
    def fail(lines, _):
        raise InputError("tokenizer 'x' can't cut 'A dog'")

    monkeypatch.setattr(stream, "_cut", fail)
    with pytest.raises(InputError, match="can't cut 'A dog'"):
        vokenize(Remainders(), cutter, [text], tmp_path / "out")


def test_a_failing_disk_ends_the_run_with_its_error(tmp_path, cutter, text, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(growing, "sync_folder", full)
    with pytest.raises(InputError, match=r"can't be written: No space left on device\. What is done stays; rerun"):
        vokenize(Remainders(), cutter, [text], tmp_path / "out", shard_lines=2)


@pytest.mark.slow
def test_processes_that_cut_give_the_same_and_a_killed_one_ends_the_run(tmp_path, cutter, text):
    expected = content_of(vokenize(Remainders(), cutter, [text], tmp_path / "one", shard_lines=2).folder)
    several = vokenize(Remainders(), cutter, [text], tmp_path / "two", shard_lines=2, workers=2)
    assert content_of(several.folder) == expected

    class Killing(Remainders):
        def label_pieces(self, text, shard):
            if shard == 1:
                for process in stream_pool[0]._processes.values():
                    process.kill()
            return super().label_pieces(text, shard)

    stream_pool = []
    executor = stream._executor
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "_executor", lambda *args: stream_pool.append(executor(*args)) or stream_pool[0])
        many = write(tmp_path / "many", LINES * 50)
        with pytest.raises(InputError, match="a process that cuts text into pieces was killed"):
            vokenize(Killing(), cutter, [many], tmp_path / "three", shard_lines=2, workers=1)
    assert len(stream_pool) == 1


CUTS_FOR_EVER = """
import sys, time
from visual_grounding.vokenization import stream
from visual_grounding.vokenization.cutting import Cutter

if __name__ == "__main__":
    with stream._executor(Cutter(sys.argv[1]), 2) as pool:
        for each in [pool.submit(stream._cut, ["a dog"], None) for _ in range(4)]:
            each.result()
        print(*pool._processes, flush=True)
        time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_processes_that_cut_end_with_the_one_that_was_killed(tmp_path, tokenizer, how):
    """They would keep its output open, and whoever reads that waits for ever."""
    script = tmp_path / "cuts.py"
    script.write_text(CUTS_FOR_EVER)
    command = [sys.executable, str(script), str(tokenizer)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        workers = process.stdout.readline().split()
        assert len(workers) == 2
        process.send_signal(how)
        assert process.communicate(timeout=60)[0] == b""  # reads until nobody has it open any more


def test_two_texts_are_cut_beside_one_another_in_threads(tmp_path, cutter, text):
    others = Cutter(str(make_tokenizer(tmp_path / "tokenizer", "bytes")), window=cutter.window)
    expected = [vokenize(Remainders(), each, [text], tmp_path / f"{n}") for n, each in enumerate((cutter, others))]
    both = threading.Barrier(2)

    class Meeting(Remainders):
        def label_pieces(self, text, shard):
            if shard == 0:
                both.wait(60)
            return super().label_pieces(text, shard)

    with ThreadPoolExecutor(2) as pool:
        found = [
            pool.submit(vokenize, Meeting(), each, [text], tmp_path / f"again{number}", shard_lines=2)
            for number, each in enumerate((cutter, others))
        ]
        assert [each.result().tokens_sha256 for each in found] == [each.tokens_sha256 for each in expected]


def test_every_file_is_opened_before_the_first_is_labelled(tmp_path, cutter, text):
    class None_(Remainders):
        def label_pieces(self, text, shard):
            raise AssertionError("labelled")

    broken = tmp_path / "broken.gz"
    broken.write_bytes(b"no gzip")
    for wrong, message in ((tmp_path / "typo", "No such file"), (broken, "Not a gzipped"), (tmp_path, "directory")):
        with pytest.raises(InputError, match=message):
            vokenize(None_(), cutter, [text, wrong], tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def test_standard_input_is_refused_for_several_ranks(tmp_path, cutter, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(InputError, match="standard input goes to one of them"):
        vokenize(Remainders(), cutter, [Path("-")], tmp_path / "out")


def test_scores_that_a_method_has_not_are_refused(tmp_path, cutter, text):
    class Unscored(Remainders):
        scored = False

    with pytest.raises(InputError, match="method remainders has no scores"):
        vokenize(Unscored(), cutter, [text], tmp_path / "out", keep_scores=True)


@pytest.mark.parametrize("lines", [[], ["", ""]])
def test_an_empty_text_is_refused(tmp_path, cutter, lines):
    with pytest.raises(InputError, match="empty should hold text, but is empty"):
        vokenize(Remainders(), cutter, [write(tmp_path / "empty", lines)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_blank_text_has_no_vokens(tmp_path, cutter):
    found = vokenize(Remainders(), cutter, [write(tmp_path / "blank", ["", " "])], tmp_path / "blanks")
    assert (found.lines, found.tokens, found.offsets.tolist()) == (2, 0, [0, 0, 0])


def test_check_notices_another_text_of_the_same_pieces(tmp_path, cutter, text):
    vokenize(Remainders(), cutter, [text], tmp_path / "out")
    spaced = write(tmp_path / "spaced", [f" {line}" if line else line for line in LINES])
    with pytest.raises(InputError, match=r"was made of another text: its sha256 .* although its pieces are the same"):
        check_vokens(tmp_path / "out", [spaced])


def test_check_compares_the_pieces_with_the_digest_that_training_trusts(tmp_path, cutter, text):
    meta = vokenize(Remainders(), cutter, [text], tmp_path / "out").folder / "meta.json"
    held = json.loads(meta.read_text())
    meta.write_text(json.dumps({**held, "tokens_sha256": "0" * 64}))
    with pytest.raises(InputError, match=r"tokens\.txt was changed: its sha256 isn't the one in its meta\.json"):
        check_vokens(tmp_path / "out", [text])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("tokens.txt", lambda content: content.replace(b"dog", b"ball"), "should have the pieces of 'A dog runs"),
        ("tokens.txt", lambda content: content + b"dog\n", "goes on|of this text of 7 lines"),
        ("dict.txt", lambda content: content.replace(b"dog 1\n", b""), "should be the dictionary of"),
        ("keys.txt", lambda content: content.replace(b"3.jpg", b"9.jpg"), "was changed after its artefact was made"),
        ("vokens.npy", lambda content: content[:-4] + b"\x63\0\0\0", "but has 99 at"),
        ("vokens.npy", lambda content: content[:-4] + b"\x01\0\0\0", r"vokens\.npy isn't what was written"),
        ("scores.npy", lambda content: content[:-2] + b"\0\x7e", r"scores\.npy isn't what was written: its sha256"),
        ("scores.npy", None, r"scores\.npy isn't what was written: it isn't there any more\. Delete .*out, and make"),
        ("others.npy", lambda content: content, r"others\.npy isn't what was written: meta\.json knows nothing of it"),
    ],
)
def test_check_finds_what_was_changed(tmp_path, cutter, text, name, change, message):
    path = vokenize(Remainders(), cutter, [text], tmp_path / "out", keep_scores=True).folder / name
    check_vokens(tmp_path / "out", [text])
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes() if path.exists() else b""))
    with pytest.raises(InputError, match=message):
        check_vokens(tmp_path / "out", [text])


def test_dry_run_tells_time_and_size(tmp_path, cutter, text):
    ticks = iter([10.0, 12.0])
    found = estimate(Remainders(), cutter, [text], tmp_path / "out", False, 2, clock=lambda: next(ticks))
    whole = vokenize(Remainders(), cutter, [text], tmp_path / "out", shard_lines=2)
    assert (found.lines, found.letters, found.pieces) == (7, sum(map(len, LINES)), whole.tokens)
    assert (found.seconds, found.rate) == (2.0, whole.tokens / 2)  # all of it is the sample
    size = sum((whole.folder / name).stat().st_size for name in ("vokens.npy", "offsets.npy", "tokens.txt", "dict.txt"))
    assert abs(found.size - size - (whole.folder / "keys.txt").stat().st_size) < 300
    assert "7 lines" in found.describe() and "Nothing was written" in found.describe()


def test_dry_run_counts_scores_and_shares_the_time_among_ranks_with_a_gpu(tmp_path, cutter, text, monkeypatch):
    def told(scores: bool, **plan: object):
        ticks = iter([10.0, 12.0])
        vokenizer = Remainders()
        vokenizer.plan |= plan
        return estimate(vokenizer, cutter, [text], tmp_path / "out", scores, 2, clock=lambda: next(ticks))

    assert told(True).size - told(False).size == 2 * told(False).pieces
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "1")
    assert told(False, device="cuda").seconds == 0.5 and told(False, device="cpu").seconds == 2.0


def test_dry_run_knows_what_is_done(tmp_path, cutter, text):
    interrupt(tmp_path, cutter, text)
    found = estimate(Remainders(), cutter, [text], tmp_path / "out", False, 2)
    assert found.done == pytest.approx(4 / 7) and "continue after 57%" in found.describe()
    with pytest.raises(InputError, match="shard_lines was 2, now 1"):
        estimate(Remainders(), cutter, [text], tmp_path / "out", False, 1)


def test_dry_run_refuses_what_a_run_would(tmp_path, cutter, text):
    vokenize(Remainders(), cutter, [text], tmp_path / "out")
    assert estimate(Remainders(), cutter, [text], tmp_path / "out", False, SHARD_LINES).done == 1
    with pytest.raises(InputError, match="holds the vokens of another text"):
        estimate(Remainders(), cutter, [write(tmp_path / "other", ["a"])], tmp_path / "out", False, SHARD_LINES)
    with pytest.raises(InputError, match="scores was False, now True"):
        estimate(Remainders(), cutter, [text], tmp_path / "out", True, SHARD_LINES)
    (tmp_path / "photos").mkdir()
    with pytest.raises(InputError, match="exists and isn't a finished vokens"):
        estimate(Remainders(), cutter, [text], tmp_path / "photos", False, SHARD_LINES)


def test_dry_run_refuses_what_it_cannot_read(tmp_path, cutter):
    with pytest.raises(InputError, match="standard input can be read only once"):
        estimate(Remainders(), cutter, [Path("-")], tmp_path / "out", False, 2)
    with pytest.raises(InputError, match="should hold text, but is empty"):
        estimate(Remainders(), cutter, [write(tmp_path / "empty", [""])], tmp_path / "out", False, 2)


def test_threads_leave_nothing_behind(tmp_path, cutter, text):
    import threading

    before = threading.active_count()
    interrupt(tmp_path, cutter, text)
    assert threading.active_count() == before
