"""`doctor`: every fault is made for real and found, several at once are all told, a healthy set-up has none."""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import write_image_ids, write_store
from PIL import Image
from safetensors.torch import load_file, save_file
from small_retriever import make_retriever, make_sentences, retrieve_dense

from visual_grounding.cli import extract
from visual_grounding.cli.doctor import NEEDED
from visual_grounding.cli.main import main
from visual_grounding.features.store import FEATURE_STORE, FeatureStore
from visual_grounding.retrieval.index import Index, build_index
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.storage.shards import ShardedArtefact

KEYS = [f"{number}.png" for number in range(8)]


@pytest.fixture
def world(tmp_path):
    """A healthy set-up: photos/, store/, retriever/, index/, text, ids/."""
    (tmp_path / "photos").mkdir()
    for key in KEYS:
        Image.new("RGB", (9, 9), "red").save(tmp_path / "photos" / key)
    write_store(tmp_path / "store", np.random.default_rng(0).normal(size=(8, 1, 6)), KEYS)
    retriever = make_retriever(tmp_path / "retriever")
    build_index(retriever, FeatureStore(tmp_path / "store"), tmp_path / "index")
    sentences = make_sentences()
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in sentences))
    retrieve_dense(retriever, Index(tmp_path / "index"), sentences, tmp_path / "ids", 2)
    return tmp_path


def doctor(world, capsys, *flags, without=()):
    """Exit status and output of `doctor` over all parts of a set-up."""
    parts = {
        "--images": "photos",
        "--image-features": "store",
        "--text": "text",
        "--retriever": "retriever",
        "--index": "index",
        "--image-ids": "ids",
    }
    named = [word for flag, name in parts.items() if name not in without for word in (flag, str(world / name))]
    status = main(["doctor", *named, *map(str, flags)])
    return status, capsys.readouterr().out


def complaints(output):
    return [line.removeprefix("wrong").strip() for line in output.splitlines() if line.startswith("wrong")]


def files_complaints(world, output):
    """Complaints about files: how the packages of the machine that runs the tests are isn't the matter here."""
    return [line for line in complaints(output) if str(world) in line or "`" in line]


def test_healthy_set_up_gives_no_complaint(world, capsys):
    status, output = doctor(world, capsys, "--next", "retrieve", "--out", world / "ids2")
    assert not complaints(output), output
    assert status == 0
    assert (
        f"ok     {world / 'store'}: 8 images, 1 region of 6 numbers; all rows were scanned, 0 of them absent." in output
    )
    assert "31 lines, 1 of them empty" in output and "31 sentences, 2 images each, 1 without any" in output
    assert "8 pictures, 8 of them decoded" in output and "index of 8 images" in output
    notes = sum(line.startswith("note ") for line in output.splitlines())  # of the machine
    verdict = f"Nothing is wrong; {notes} note{'s' if notes > 1 else ''}." if notes else "All is well."
    assert f"{verdict} Next: visual-grounding retrieve --method dense -n 8 --retriever" in output


def test_lines_that_do_not_match(world, capsys):
    with open(world / "text", "a") as file:
        file.write("one more\n")
    status, output = doctor(world, capsys)
    assert status == 2
    assert files_complaints(world, output) == [
        f"{world / 'text'} has 32 sentences, but image ids in {world / 'ids'} have 31 rows. Name the table of "
        "this text, or make one with: visual-grounding retrieve --text FILE … --out DIR"
    ]


def test_text_that_changed_but_has_as_many_lines_is_a_note(world, capsys):
    (world / "text").write_text("other\n" * 31)
    output = doctor(world, capsys)[1]
    assert not files_complaints(world, output) and "was made for another text" in output
    notes = sum(line.startswith("note ") for line in output.splitlines())
    assert output.splitlines()[-1] == f"Nothing is wrong; {notes} note{'s' if notes > 1 else ''}." or complaints(output)


def test_ids_of_another_store(world, capsys):
    write_image_ids(world / "other", np.zeros((31, 2), np.int32), "f" * 64)
    status, output = doctor(world, capsys, "--image-ids", world / "other")
    assert status == 2 and len(files_complaints(world, output)) == 1
    assert "don't belong to feature store" in output and "keys sha256 ffffffff… ≠" in output


def test_ids_of_splits_are_checked_one_by_one(world, capsys):
    (world / "splits").mkdir()
    shutil.copytree(world / "ids", world / "splits/train")
    write_image_ids(world / "splits/valid", np.full((3, 2), 99, np.int32), "f" * 64)
    (world / "splits/test.partial/progress").mkdir(parents=True)
    status, output = doctor(world, capsys, "--image-ids", world / "splits")
    found = files_complaints(world, output)
    assert status == 2 and len(found) == 2
    assert f"{world / 'splits/test'} isn't finished: 0 shards are done" in found[0]
    assert "refer to row 99, but feature store" in found[1]
    assert f"{world / 'splits/train'}: 31 sentences" in output


def test_features_that_are_nan(world, capsys):
    with open(world / "store/features.npy", "r+b") as file:  # the last number of row 7, and the first of row 6
        file.seek(-2, os.SEEK_END)
        file.write(np.float16(np.nan).tobytes())
        file.seek(-24, os.SEEK_END)
        file.write(np.float16(np.inf).tobytes())
    status, output = doctor(world, capsys)
    assert status == 2
    assert "2 images hold NaN or infinity, such as row 6 (6.png), row 7 (7.png); all rows were scanned" in output


def test_keys_that_were_changed(world, capsys):
    keys = world / "store/keys.txt"
    keys.write_text(keys.read_text().replace("3.png", "x.png"))
    status, output = doctor(world, capsys)
    assert status == 2 and f"{keys} was changed after its artefact was made: its sha256 is" in output
    keys.write_text("0.png\n")
    assert "should hold 8 image keys, one a row, but has 1 lines" in doctor(world, capsys)[1]


def test_index_with_numbers_that_are_none_and_with_swapped_keys(world, capsys):
    embeddings = np.load(world / "index/embeddings.npy", mmap_mode="r+")
    embeddings[3, 1], embeddings[6, 0] = np.nan, -np.inf
    embeddings.flush()
    keys = world / "index/keys.txt"
    sound = keys.read_text()
    status, output = doctor(world, capsys)
    assert status == 2
    assert "index: 2 images hold NaN or infinity, such as row 3 (3.png), row 6 (6.png); all rows were scanned" in output
    keys.write_text("1.png\n0.png\n" + sound[12:])
    status, output = doctor(world, capsys)
    assert status == 2 and f"{keys} was changed after its artefact was made: its sha256 is" in output
    assert "index: 2 images hold NaN or infinity, such as row 3, row 6; all rows were scanned" in output


def test_index_with_rows_that_are_no_unit_vectors(world, capsys):
    embeddings = np.load(world / "index/embeddings.npy", mmap_mode="r+")
    embeddings[7] *= 1e4
    embeddings[2] *= 0.5
    embeddings[4] = 0  # as if absent
    embeddings[5] *= 1 + 1e-5  # as another library's rounding may
    embeddings.flush()
    status, output = doctor(world, capsys)
    assert status == 2
    assert (
        "index: 2 images should have unit vectors, or 0 where absent, but don't, such as row 2 (2.png), row 7 (7.png), "
        "of norm 0.5, 1e+04; all rows were scanned. Delete it, and build it again." in output
    )
    assert "index: index of 8 images" not in output and "NaN" not in output


def test_partial_output(world, capsys):
    unfinished = ShardedArtefact(world / "store2", FEATURE_STORE, {}, 8, 3, {"features": ((1, 6), "float16")})
    unfinished.write(next(unfinished.missing()), {"features": np.ones((3, 1, 6))})
    status, output = doctor(world, capsys, "--image-features", world / "store2")
    assert status == 2
    assert files_complaints(world, output) == [
        f"{world / 'store2'} isn't finished: 1 of 3 shards are done. Run the command that makes it again; it continues "
        "where it stopped."
    ]
    shutil.copytree(world / "store2.partial", world / "store.partial")
    status, output = doctor(world, capsys)
    assert status == 0 and f"note   {world / 'store.partial'} lies beside the finished {world / 'store'}" in output


def test_too_little_disk_for_the_next_step(world, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
        status, output = doctor(
            world, capsys, "--next", "extract", "--out", world / "new", "--values-per-image", 2 * 10**9
        )
    # by hand: 8 x 2e9 x 2 = 3.2e10, and 2 % more
    assert status == 2 and "`extract` needs about 30.4 GiB at" in output and "too little" in output
    assert not (world / "new").exists() and not (world / "new.partial").exists()
    for step, size in (("extract", "32.8 KiB"), ("index", "392 bytes"), ("retrieve", "1.7 KiB")):
        # by hand, each array with a header of 128 bytes, and 2 % more:
        # 8 x 2048 x 2 + 128 = 32896; 8 x 8 x 4 + 128 = 384; 31 x 8 x (4 + 2) + 2 x 128 = 1744
        status, output = doctor(world, capsys, "--next", step, "--out", world / "new")
        assert status == 0 and f"`{step}` needs about {size} at {world / 'new'}" in output


@pytest.mark.parametrize("step", NEEDED)
def test_next_command_is_one_that_exists(world, capsys, step):
    status, output = doctor(world, capsys, "--next", step, "--out", world / "a new one")
    assert status == 0
    words = shlex.split(output.splitlines()[-1].partition("Next: ")[2])
    assert words[:2] == ["visual-grounding", step] and words[-2:] == ["--out", str(world / "a new one")]
    if step == "extract":  # its network isn't here
        parser = argparse.ArgumentParser()
        extract.add_arguments(parser)
        parser.parse_args(words[2:])
    else:
        assert main(words[1:]) == 0 and (world / "a new one/meta.json").exists()


def test_pictures_of_several_sources_are_checked_together(world, capsys):
    (world / "more").mkdir()
    (world / "photos/7.png").rename(world / "more/7.png")
    assert "has 1 images, of 8, that" in doctor(world, capsys)[1]
    status, output = doctor(world, capsys, "--images", world / "more", "--next", "extract", "--out", world / "new")
    assert status == 0 and f"{world / 'photos'} and {world / 'more'}: 8 pictures, 8 of them decoded" in output
    assert f"--images {world / 'photos'} --images {world / 'more'} --out" in output
    status, output = doctor(world, capsys, "--key-column", "id")
    assert status == 2 and "key column id is for parquet, but" in output


def test_stale_index(world, capsys):
    make_retriever(world / "retriever2", seed=1)
    status, output = doctor(world, capsys, "--retriever", world / "retriever2")
    assert status == 2 and "Stale: index" in output and "was made by another retriever" in output
    assert f"do: visual-grounding index --retriever {world / 'retriever2'} --image-features {world / 'store'}" in output
    features = np.random.default_rng(5).normal(size=(8, 1, 6))
    write_store(world / "store2", features, KEYS)
    meta = json.loads((world / "store2/meta.json").read_text())
    meta["plan"]["backbone"] = "other"
    (world / "store2/meta.json").write_text(json.dumps(meta))
    assert (
        "was made from other features of the same images"
        in doctor(world, capsys, "--image-features", world / "store2")[1]
    )
    write_store(world / "store3", features, [f"x{key}" for key in KEYS])
    assert "is of other images than" in doctor(world, capsys, "--image-features", world / "store3")[1]


def test_retriever_that_does_not_fit_or_is_broken(world, capsys):
    write_store(world / "store2", np.ones((8, 1, 7)), KEYS)
    output = doctor(world, capsys, "--image-features", world / "store2")[1]
    assert "1 region with 6 numbers, but these have 1 with 7" in output
    weights = load_file(world / "retriever/model.safetensors")
    weights["text.encoder.embedding.weight"] = torch.full_like(weights["text.encoder.embedding.weight"], torch.nan)
    save_file(weights, world / "retriever/model.safetensors")
    output = doctor(world, capsys)[1]
    assert "should hold finite weights, but 1 of 6 have NaN or infinity (text.encoder.embedding.weight)" in output


def test_pictures_that_are_unreadable(world, capsys):
    (world / "photos/3.png").write_bytes(b"")
    (world / "photos/5.png").write_text("no picture")
    status, output = doctor(world, capsys)
    assert status == 2
    assert "2 of 8 sampled pictures are unreadable: 3.png (empty file), 5.png (not an image)" in output


def test_everything_that_is_wrong_is_told_at_once(world, capsys):
    (world / "text").write_bytes(b"caf\xe9\n")
    (world / "retriever/config.json").unlink()
    shutil.rmtree(world / "ids")
    (world / "index/embeddings.npy").write_bytes(b"")
    (world / "photos/3.png").write_bytes(b"")
    meta = world / "store/meta.json"
    meta.write_text(meta.read_text().replace('"keys_sha256"', '"other"'))
    status, output = doctor(world, capsys, "--next", "retrieve", "--out", world / "new")
    found = files_complaints(world, output)
    for message in (
        "meta.json should have text as 'keys_sha256', but has nothing",
        "should be UTF-8, but line 1 has byte 0xe9",
        "should hold image ids, but there is no",
        "its config.json can't be used",
        "embeddings.npy should be a plain .npy array",
        "1 of 8 sampled pictures are unreadable",
    ):
        assert any(message in line for line in found), (message, output)
    assert status == 2 and len(found) == 6 and "How much disk `retrieve` needs isn't known" in output
    assert "things to mend" in output


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--out", "x"], "--out x is where the next step will write: name that step with --next"),
        (["--next", "extract"], "--next extract also needs --images and --out"),
        (["--next", "index", "--out", "x"], "--next index also needs --retriever and --image-features"),
        (
            ["--next", "extract", "--images", "p", "--out", "x", "--values-per-image", "0"],
            "should be at least 1, but is 0",
        ),
    ],
)
def test_doctor_refuses_flags_that_say_too_little(capsys, flags, message):
    assert main(["doctor", *flags]) == 2
    assert message in capsys.readouterr().err


def test_folders_without_a_name_of_their_own(world, capsys, monkeypatch):
    monkeypatch.chdir(world / "photos")
    status, output = doctor(world, capsys, "--images", ".", "--next", "extract", "--out", "..", without=["photos"])
    assert status == 0 and "ok     .: 8 pictures" in output and "`extract` needs about 32.8 KiB at .." in output
    monkeypatch.chdir(world / "store")
    (world / "store.partial").mkdir()
    assert f"note   {world / 'store.partial'} lies beside" in doctor(world, capsys, "--image-features", ".")[1]


def test_doctor_whose_reader_has_gone_ends_quietly():
    script = """import sys
from visual_grounding.cli.doctor import say
for _ in range(20000):
    say("x" * 99)
sys.exit(2)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == 2 and b"BrokenPipe" not in errors and b"Traceback" not in errors, errors


def fresh_doctor(packages: Path, *flags: object, only: bool = False) -> subprocess.CompletedProcess[str]:
    """`doctor` in a fresh process that finds `packages` before what is installed, or, with `only`, instead of it."""
    link = packages / "visual_grounding"  # the package alone: beside it may lie what pip notes of an editable one
    if not link.exists():
        link.symlink_to(Path(__file__).resolve().parents[2] / "visual_grounding")
    environment = {**os.environ, "PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"}
    switches = ["-S"] if only else []
    command = [sys.executable, *switches, "-m", "visual_grounding", "doctor", *map(str, flags)]
    return subprocess.run(command, env=environment, cwd=packages, capture_output=True, text=True)


def fake_distribution(folder: Path, name: str, version: str) -> None:
    """What `pip` leaves beside a package, so that it counts as installed."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_wrong_torchvision_and_both_faiss_packages(tmp_path):
    fake_distribution(tmp_path, "faiss-cpu", "1.9.0")
    fake_distribution(tmp_path, "faiss-gpu", "1.7.2")
    fake_distribution(tmp_path, "torchvision", "0.99.0+cu124")
    (tmp_path / "torchvision").mkdir()
    # What the registry's torchvision does beside a CPU-only torch: it asks for an operator that isn't there.
    (tmp_path / "torchvision/__init__.py").write_text(
        "import torch\ntorch.library.register_fake('torchvision::nms')(lambda *_: None)\n"
    )
    done = fresh_doctor(tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    found = complaints(done.stdout)
    assert any(line.startswith("torchvision 0.99.0+cu124 doesn't work with torch") for line in found), done.stdout
    assert any("operator torchvision::nms does not exist" in line for line in found), done.stdout
    assert "do: pip install --force-reinstall --no-deps torchvision==0." in done.stdout
    assert any("faiss-cpu 1.9.0 and faiss-gpu 1.7.2 are installed together" in line for line in found), done.stdout
    assert "do: pip uninstall -y faiss-cpu faiss-gpu && pip install" in done.stdout


def test_missing_extra_and_missing_packages(world):
    """All that is installed here, by links, but for faiss, fairseq and Pillow's description."""
    packages = world / "packages"
    packages.mkdir()
    left_out = ("faiss", "fairseq", "__editable__", "pillow-", "visual_grounding-")
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not entry.name.lower().startswith(left_out):
            (packages / entry.name).symlink_to(entry)
    fake_distribution(packages, "visual_grounding", "9.9")
    requires = ["fairseq-fixed==0.12.3.1", "Pillow>=10", "numpy>=1000", "faiss-cpu>=1.9; extra == 'cpu'"]
    with open(packages / "visual_grounding-9.9.dist-info/METADATA", "a") as file:
        file.writelines(f"Requires-Dist: {line}\n" for line in requires)
    shutil.copytree(world / "index", world / "faiss-index")
    (world / "faiss-index/index.faiss").write_bytes(b"")
    done = fresh_doctor(packages, "--index", world / "faiss-index", "--retriever", world / "retriever", only=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    found = complaints(done.stdout)
    assert any("faiss isn't installed (extra [" in line and "faiss-index was made by it" in line for line in found)
    assert any(line.startswith("numpy should be >=1000, but is ") for line in found), done.stdout
    assert 'wrong  Pillow isn\'t installed.\n       do: pip install "Pillow>=10"' in done.stdout
    assert "note   fairseq-fixed isn't installed: extract, index and retrieve work, training doesn't." in done.stdout
    assert f"ok     {world / 'retriever'}: retriever" in done.stdout  # everything else works without fairseq


def test_faiss_that_nothing_needs_is_only_a_note(tmp_path, monkeypatch):
    from visual_grounding.diagnosis import environment
    from visual_grounding.diagnosis.findings import Level

    monkeypatch.setattr(environment, "FAISS", ("no-such-faiss",))
    (finding,) = environment.check_faiss(None)
    assert finding.level is Level.NOTE and "exact search works without it" in finding.text
    assert "pip install 'visual_grounding[" in finding.remedy
    assert Retriever  # imported without faiss


def test_ids_and_pictures_are_compared_with_the_index_where_there_is_no_store(world, capsys):
    write_image_ids(world / "other", np.zeros((31, 2), np.int32), "f" * 64)
    without = ("store", "photos")
    status, output = doctor(world, capsys, without=without)
    assert "other images" not in output and f"{world}/ids: 31 sentences" in output
    status, output = doctor(world, capsys, "--image-ids", world / "other", without=without)
    assert status == 2 and f"{world}/other is of other images than {world}/index: their keys differ." in output
    shutil.copy(world / "photos" / KEYS[0], world / "photos/one_more.jpg")
    status, output = doctor(world, capsys, without=("store",))
    assert status == 2 and f"{world}/index is of other images than {world}/photos: their keys differ." in output
