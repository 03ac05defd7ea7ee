"""Finders: one from outside the package, words that open one, workers of a data loader, the loop that writes tables."""

import errno
import filecmp
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from asking import Asking, same
from conftest import write_store
from small_retriever import WORDS, make_retriever, make_sentences, make_store
from torch.utils.data import DataLoader

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval import looking_up
from visual_grounding.retrieval.dense import DenseFinder
from visual_grounding.retrieval.finder import METHODS, Finder, Found, find_class, open_finder, write_image_ids
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.image_names import ImageNames
from visual_grounding.retrieval.index import Index, build_index
from visual_grounding.retrieval.keyword import KeywordFinder
from visual_grounding.retrieval.paired import PairedFinder
from visual_grounding.storage.whole_folder import lock_folder

OUTSIDE = '''
import numpy as np

from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.finder import Finder, Found, add_images_per_sentence
from visual_grounding.shares import warn_of


class LengthFinder(Finder):
    """Rows that follow the number of a line's words."""

    counts = ("long",)

    def __init__(self, store, images_per_sentence, step):
        self.collection = store
        self.images_per_sentence = images_per_sentence
        self.step = step
        self.plan = {"n": images_per_sentence, "step": step}
        self.signed = {"step": step}

    @classmethod
    def add_arguments(cls, parser):
        parser.add_argument("--image-features", required=True)
        parser.add_argument("--step", type=int, default=1, help="rows from one image to the next")
        add_images_per_sentence(parser)

    @classmethod
    def from_arguments(cls, args):
        return cls(FeatureStore(args.image_features), args.images_per_sentence, args.step)

    def search(self, lines, empty, excluded):
        first = np.array([[len(line.split())] for line in lines])
        ids = first + self.step * np.arange(self.images_per_sentence)
        if excluded is not None:
            ids[ids == excluded[:, None]] = -1
        return Found(ids, (ids >= 0) / first.clip(1), {"long": int((first > 3).sum())})

    def warnings(self, counts, lines):
        yield from super().warnings(counts, lines)
        yield from warn_of(counts["long"], lines, "are long.")


class NoFinder:
    pass
'''


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """The name of a finder in a package that isn't this one."""
    package = f"lengths_{tmp_path.name}".replace("-", "_")
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / package / "finders.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    return f"{package}.finders:LengthFinder"


@pytest.fixture
def retriever(tmp_path):
    return make_retriever(tmp_path / "retriever")


@pytest.fixture
def store(tmp_path):
    return FeatureStore(make_store(tmp_path / "store"))


def retrieve(capsys, *flags):
    status = main(["retrieve", *map(str, flags)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_finder_from_outside_writes_a_table_with_its_flags_counts_and_warnings(outside, store, tmp_path, capsys):
    (tmp_path / "text").write_text("a b\n\na\n1 2 3 4 5\n")
    (tmp_path / "keys").write_text("image2.jpg\n\nimage1.jpg\nimage99.jpg\n")
    flags = ["--method", outside, "--image-features", store.folder, "--text", tmp_path / "text", "-n", 3]
    flags += ["--exclude-paired", tmp_path / "keys", "--shard-size", 2]
    status, out, error = retrieve(capsys, *flags, "--step", 2, "--out", tmp_path / "ids")
    assert status == 0, error
    table = ImageIds(tmp_path / "ids")
    assert table.ids.tolist() == [[-1, 4, 6], [-1, -1, -1], [-1, 3, 5], [5, 7, 9]]
    assert table.scores.tolist() == [[0, 0.5, 0.5], [0, 0, 0], [0, 1, 1], [np.float16(0.2)] * 3]
    assert table.counts == {"empty": 1, "long": 1, "unknown_excluded": 1}
    assert f"retrieve|method:{outside}|n:3|step:2|keys:{store.keys_sha256[:8]}|exclude:paired|" in out
    assert error.splitlines() == [
        "warning: 1 of 4 sentences (25.0 %) are empty; they have no image.",
        "warning: 1 of 4 sentences (25.0 %) are long.",
        "warning: 1 of 4 sentences (25.0 %) have a key in --exclude-paired that the collection doesn't have.",
    ]
    table.check_against(store)
    status, _, error = retrieve(capsys, *flags, "--step", 2, "--out", tmp_path / "ids")
    assert status == 0 and "nothing was done" in error
    status, _, error = retrieve(capsys, *flags, "--step", 1, "--out", tmp_path / "ids")
    assert status == 2 and "step was 2, now 1" in error


def test_finder_from_outside_shows_its_flags_and_names_those_that_are_missing(outside, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["retrieve", "--method", outside, "--help"])
    shown = capsys.readouterr().out
    assert "--step STEP" in shown and "rows from one image to the next" in shown and "--nprobe" not in shown
    status, _, error = retrieve(capsys, "--method", outside, "--out", tmp_path / "ids")
    assert status == 2 and f"--method {outside} also needs --image-features and --text." in error


def test_methods_are_looked_up_by_name_and_others_are_refused(outside):
    assert [find_class(name).method for name in METHODS] == list(METHODS)
    assert find_class(outside).method == outside and issubclass(find_class(outside), Finder)
    with pytest.raises(
        InputError, match=r"one of dense, keyword, object, paired, scene, or package.module:Name .*, but is 'dence'"
    ):
        find_class("dence")
    with pytest.raises(InputError, match=r"should be a class derived from .*finder.Finder, but is <class '.*NoFinder'"):
        find_class(outside.replace("LengthFinder", "NoFinder"))
    with pytest.raises(InputError, match=r"method nowhere.to:Be can't be loaded: No module named 'nowhere'"):
        find_class("nowhere.to:Be")


def test_help_shows_every_method_with_its_flags(capsys):
    with pytest.raises(SystemExit):
        main(["retrieve", "--help"])
    sections = capsys.readouterr().out.partition("--method dense:")[2]
    dense, _, rest = sections.partition("--method keyword:")
    keyword, _, rest = rest.partition("--method object:")
    objects, _, rest = rest.partition("--method paired:")
    paired, _, scene = rest.partition("--method scene:")
    assert "--clusters K" in objects and "--captions" not in objects
    assert "--word-vectors FILE" in objects and "--word-vectors FILE" in scene and "--captions TSV" in scene
    assert "--nprobe N, --probes N" in dense and "--images-per-sentence N" in dense
    assert "--stop-words LANG|FILE" in keyword and "--images-per-sentence N" in keyword and "--nprobe" not in keyword
    assert "--strict" in paired and "--image-features DIR" in paired and "--images-per-sentence" not in paired


def test_flags_of_another_method_are_taken_with_a_warning(store, tmp_path, capsys):
    (tmp_path / "keys").write_text("image2.jpg\n")
    flags = ["--method", "paired", "--image-features", store.folder, "--keys", tmp_path / "keys"]
    unread = ["-n", 4, "--nprobe", 2, "--stop-words", "de", "--exclude-paired", tmp_path / "keys"]
    status, out, error = retrieve(capsys, *flags, *unread, "--out", tmp_path / "ids")
    assert status == 0 and "1 sentences, 1 images each" in out
    assert error.splitlines() == [
        f"warning: {flag} is of another method, so it isn't read."
        for flag in ("-n", "--nprobe", "--stop-words", "--exclude-paired")
    ]


def test_open_finder_reads_the_flags_of_retrieve(retriever, store, tmp_path):
    build_index(retriever, store, tmp_path / "index")
    words = f"dense --retriever {retriever.folder} --index '{tmp_path / 'index'}' -n 3"
    finder = open_finder(words, device="cpu")
    assert isinstance(finder, DenseFinder) and (finder.method, finder.images_per_sentence) == ("dense", 3)
    assert finder.plan["n"] == 3 and finder.plan["device"] == "cpu"
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="cuda"):  # it is asked of the finder
            open_finder(words, device="cuda")
    assert open_finder(f"{words} --device cpu", device="cuda").plan["device"] == "cpu"
    finder.check_store(store)
    line = make_sentences()[0]
    own = DenseFinder(retriever, Index(tmp_path / "index"), 3).find([line])
    assert np.array_equal(finder.find([line]).ids, own.ids)
    assert ImageNames(finder.collection).describe(own.ids[0], own.scores[0])[0] == (
        f"image{own.ids[0, 0]}.jpg:{own.scores[0, 0]:.4f}"
    )
    paired = open_finder(["paired", "--image-features", str(store.folder)])
    assert isinstance(paired, PairedFinder) and paired.find(["image7.jpg", ""]).ids.tolist() == [[7], [-1]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", r"a finder should be a method \(dense, keyword, object, paired, scene\) and its flags, but is empty"),
        ("keyword --captions 'a", r"takes them apart, but \"keyword --captions 'a\" has no closing quotation"),
        ("keyword \\", r"as a shell takes them apart, but .* has no escaped character"),
        ("dense", r"finder 'dense': the following arguments are required: --retriever, --index"),
        ("paired --image-features x --nprobe 3", r"finder 'paired': unrecognized arguments: --nprobe 3"),
        (
            "dense --retriever r --index i --n 3",
            r"finder 'dense': unrecognized arguments: --n 3; close .*: --nprobe, -n",
        ),
        ("paired --image-features nowhere", r"nowhere should hold a feature store, but there is no"),
    ],
)
def test_open_finder_refuses_words_that_open_nothing(words, message):
    with pytest.raises(InputError, match=message):
        open_finder(words)


def test_store_of_other_images_is_refused(store, tmp_path):
    other = FeatureStore(write_store(tmp_path / "other", np.ones((20, 1, 6)), [f"{row}.jpg" for row in range(20)]))
    message = f"{store.folder}, but feature store {other.folder} .*: keys sha256 {store.keys_sha256[:8]}… ≠ "
    with pytest.raises(InputError, match=message + other.keys_sha256[:8]):
        PairedFinder(store).check_store(other)


@pytest.fixture
def finders(retriever, store, tmp_path):
    """Every way of finding, with lines for it; dense on each kind of index that opens files of its own."""
    large = FeatureStore(write_store(tmp_path / "large", np.random.default_rng(2).normal(size=(300, 1, 6))))
    rng = np.random.default_rng(3)
    captions = "".join(f"image{row}.jpg\t{' '.join(rng.choice(WORDS, 5))}\n" for row in range(20) for _ in range(2))
    (tmp_path / "captions.tsv").write_text(captions)
    found: list[tuple[Finder, list[str]]] = [
        (KeywordFinder(tmp_path / "captions.tsv", store, 4), make_sentences()),
        (PairedFinder(store), ["image3.jpg", "", "image9.jpg", "nowhere.jpg"]),
    ]
    for kind in ("exact", "flat", "ivf", "pq"):
        if kind != "exact":
            pytest.importorskip("faiss")
        build_index(retriever, large, tmp_path / kind, kind=kind, **({"lists": 5} if kind in ("ivf", "pq") else {}))
        found.append((DenseFinder(retriever, Index(tmp_path / kind), 4), make_sentences()))
    return found


def test_finders_give_the_same_in_a_data_loaders_workers(finders):
    dataset = Asking(finders)
    expected = [dataset[item] for item in range(len(dataset))]  # the files of all are open here before workers start
    assert sum((found.ids >= 0).sum() for found, _ in expected) > 400
    for workers, context in ((0, None), (1, "fork"), (2, "fork"), (2, "spawn")):
        loader = DataLoader(dataset, 2, num_workers=workers, multiprocessing_context=context, collate_fn=same)
        items = [item for batch in loader for item in batch]
        assert len(items) == len(expected)
        for (found, names), (wanted, wanted_names) in zip(items, expected):
            assert np.array_equal(found.ids, wanted.ids) and np.array_equal(found.scores, wanted.scores)
            assert (found.counts, names) == (wanted.counts, wanted_names)


FORKED = """
import multiprocessing, sys
import torch
from visual_grounding.retrieval.finder import open_finder
finder = open_finder(sys.argv[1:])
lines = [f"w{n % 40} w{n % 7}" for n in range(600)]
before = finder.find(lines)

def again():
    torch.set_num_threads(1)  # as a data loader's worker does
    found = finder.find(lines)
    sys.exit(0 if (found.ids == before.ids).all() else 1)

child = multiprocessing.get_context("fork").Process(target=again, daemon=True)
child.start()
child.join(120)
print(child.exitcode)
finder.find(lines)
"""


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_faiss_with_threads_of_its_own_is_searched_after_a_fork(retriever, tmp_path, kind):
    pytest.importorskip("faiss")
    large = FeatureStore(write_store(tmp_path / "large", np.random.default_rng(2).normal(size=(2000, 1, 6))))
    build_index(retriever, large, tmp_path / "index", kind=kind, **({"lists": 30} if kind == "ivf" else {}))
    words = ["dense", "--retriever", retriever.folder, "--index", tmp_path / "index", "-n", "4", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    done = subprocess.run([sys.executable, "-c", FORKED, *words], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_keyword_finder_keeps_its_table_in_a_folder_that_goes_away(finders, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    finder, lines = finders[0]
    expected = finder.find(lines)
    (folder,) = (tmp_path / "scratch").iterdir()
    copy = pickle.loads(pickle.dumps(finder))
    assert np.array_equal(copy.find(lines).ids, expected.ids) and list((tmp_path / "scratch").iterdir()) == [folder]
    kept = pickle.dumps(finder)
    finders.clear()
    del finder
    assert not list((tmp_path / "scratch").iterdir())
    assert np.array_equal(copy.find(lines).ids, expected.ids)  # what is open stays readable
    assert np.array_equal(pickle.loads(kept).find(lines).ids, expected.ids)  # made anew


def test_keyword_finder_leaves_nothing_behind_in_a_worker_and_shares_its_table_with_workers(
    finders, store, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    words = f"keyword --captions {tmp_path / 'captions.tsv'} --image-features {store.folder} -n 4"
    lines = finders[0][1]
    expected = []
    for opened, folders in ((lambda: finders[0][0], 0), (lambda: open_finder(words), 1)):  # not made yet, and made
        finder = opened()
        loader = DataLoader(
            Asking([(finder, lines)]), 2, num_workers=2, multiprocessing_context="fork", collate_fn=same
        )
        found = [item[0].ids for batch in loader for item in batch]
        assert len(list((tmp_path / "scratch").glob("visual-grounding-*"))) == folders
        expected.append(np.concatenate(found))
    assert np.array_equal(expected[0], expected[1]) and np.array_equal(expected[0], finder.find(lines).ids)


def test_lookup_folders_of_killed_processes_are_removed_and_those_in_use_stay(finders, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    abandoned, young, used = (
        tmp_path / "scratch" / f"{dot}visual-grounding-lookup-{dot}x{n}" for n, dot in enumerate(("", ".", ""))
    )
    for folder in (abandoned, young, used):
        folder.mkdir(parents=True)
        (folder / "table").write_text("x")
    lock = lock_folder(used)
    finder, lines = finders[0]
    expected = finder.find(lines)
    assert not abandoned.exists() and (young / "table").exists() and (used / "table").exists()
    (own,) = set((tmp_path / "scratch").iterdir()) - {young, used}
    again = open_finder(
        f"keyword --captions {tmp_path / 'captions.tsv'} --image-features {finder.collection.folder} -n 4"
    )
    again.find(lines)
    assert own.exists() and np.array_equal(finder.find(lines).ids, expected.ids)
    os.close(lock)


def test_lookup_folders_stay_where_there_are_no_locks(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / "visual-grounding-lookup-x").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", no_locks)
        looking_up._remove_abandoned(tmp_path)
    assert (tmp_path / "visual-grounding-lookup-x").exists()
    looking_up._remove_abandoned(tmp_path)
    assert not (tmp_path / "visual-grounding-lookup-x").exists()


def test_copy_of_a_keyword_finder_by_fork_leaves_the_folder_to_its_owner(finders, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    finder, lines = finders[0]
    expected = finder.find(lines)
    child = os.fork()
    if not child:
        finders.clear()
        del finder
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list((tmp_path / "scratch").iterdir())) == 1
    assert np.array_equal(finder.find(lines).ids, expected.ids)


def test_keyword_finder_says_that_its_folder_cannot_be_written(finders, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(
        InputError, match=r"nowhere can't be written: No such file or directory. TMPDIR may name another"
    ):
        finders[0][0].find(["w1"])


def test_written_table_is_what_find_finds_whatever_the_shards(finders, tmp_path):
    for number, (finder, lines) in enumerate(finders):
        for shard_size in (None, 7):
            out = tmp_path / f"ids-{number}-{shard_size}"
            write_image_ids(finder, lines, out, shard_size=shard_size)
            found, table = finder.find(lines), ImageIds(out)
            assert np.array_equal(table.ids, found.ids)
            np.testing.assert_array_equal(table.scores, found.scores.astype(np.float16))
            assert not out.with_name(out.name + ".partial").exists()
        assert filecmp.cmp(tmp_path / f"ids-{number}-7/ids.npy", tmp_path / f"ids-{number}-None/ids.npy", shallow=False)


def test_write_image_ids_refuses_what_does_not_belong_together(store, tmp_path):
    finder = PairedFinder(store)
    with pytest.raises(InputError, match="method paired can't exclude images"):
        write_image_ids(finder, ["image0.jpg"], tmp_path / "ids", exclude_keys=["image0.jpg"])
    with pytest.raises(InputError, match="method paired can't exclude images"):
        finder.find(["image0.jpg"], np.array([0]))
    with pytest.raises(InputError, match="a shard should have at least 1 sentence, but has 0"):
        write_image_ids(finder, ["image0.jpg"], tmp_path / "ids", shard_size=0)
    assert not (tmp_path / "ids.partial").exists()


def test_what_a_finder_must_not_return_is_refused(store, monkeypatch):
    finder = PairedFinder(store)
    for ids, message in (
        ([[20], [0]], "paired should find rows −1..19, but found 20"),
        ([[3], [-2]], "paired should find rows −1..19, but found -2"),
        ([[3]], r"paired should find ids and scores \(2, 1\), but found \(1, 1\)"),
    ):
        found = Found(np.array(ids), np.ones((len(ids), 1)), {})
        monkeypatch.setattr(PairedFinder, "search", lambda *_, found=found: found)
        with pytest.raises(ValueError, match=message):
            finder.find(["a", "b"])


def test_what_a_finder_must_leave_out_or_cannot_mean_is_refused(store, monkeypatch):
    class Leaky(PairedFinder):
        excludes = True
        found: Found

        def search(self, lines, empty, excluded):
            return self.found

    finder = Leaky(store)
    ones = np.ones((3, 1))
    finder.found = Found(np.array([[3], [-1], [4]]), ones, {})
    with pytest.raises(ValueError, match=r"Leaky should leave out the row that is excluded for a line, but found it"):
        finder.find(["a", "b", "c"], np.array([-1, -1, 4]))
    assert finder.find(["a", "b", "c"], np.array([-1, -1, 3])).ids.tolist() == [[3], [-1], [4]]
    for ids, scores, message in (
        (np.array([[3.5], [0], [1]]), ones, "should find rows as whole numbers, but found float64"),
        (np.array([[3], [0], [1]]), 1e5 * ones, "should give scores within float16, but gave 100000"),
        (np.array([[3], [0], [1]]), np.nan * ones, "should give scores within float16, but gave nan"),
    ):
        finder.found = Found(ids, scores, {})
        with pytest.raises(ValueError, match=message):
            finder.find(["a", "b", "c"])
    finder.found = Found(np.array([[3], [0], [1]]), np.array([[1.0], [np.nan], [1.0]]), {})
    assert finder.find(["a", "", "c"]).ids.tolist() == [[3], [-1], [1]]  # an empty line may get anything


def test_shards_that_an_earlier_version_wrote_are_continued(retriever, store, tmp_path, monkeypatch):
    """They have no counts of unknown words."""
    build_index(retriever, store, tmp_path / "index")
    finder = DenseFinder(retriever, Index(tmp_path / "index"), 2)
    lines = ["w1", "", "zebra w2", "w3"]
    write_image_ids(finder, lines, tmp_path / "whole", shard_size=2)
    find, calls = DenseFinder.find, []

    def stop_at_the_second(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return find(*arguments)

    monkeypatch.setattr(DenseFinder, "find", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        write_image_ids(finder, lines, tmp_path / "ids", shard_size=2)
    note: Path = tmp_path / "ids.partial/progress/000000.json"
    said = json.loads(note.read_text())
    note.write_text(json.dumps({**said, "empty": "one"}))
    with pytest.raises(InputError, match=r"000000\.json should have a count as 'empty', but has 'one'"):
        write_image_ids(finder, lines, tmp_path / "ids", shard_size=2)
    note.write_text(json.dumps({name: said[name] for name in ("empty", "truncated", "short")}))
    counts = write_image_ids(finder, lines, tmp_path / "ids", shard_size=2)
    assert counts["empty"] == 1 and counts["unknown_words"] == 1 and len(calls) == 3
    assert filecmp.cmp(tmp_path / "ids/ids.npy", tmp_path / "whole/ids.npy", shallow=False)
    note = tmp_path / "ids.partial"
    assert not note.exists()
