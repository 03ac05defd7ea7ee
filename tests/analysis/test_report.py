"""The report: one page that needs no other file, and a picture of it."""

import re
import tracemalloc

import numpy as np
import pytest
from commands import run_command
from conftest import write_image_ids, write_store
from faults.steps import killed_at_each_step
from matplotlib.figure import Figure
from PIL import Image
from small_retriever import make_retriever, make_sentences, retrieve_dense

from visual_grounding.analysis import report as module
from visual_grounding.analysis.overlay import letterbox
from visual_grounding.analysis.report import (
    ReportImage,
    ReportRow,
    ReportSection,
    ReportTable,
    images_of_sentences,
    load_picture,
    write_report,
)
from visual_grounding.cli.main import main
from visual_grounding.features.store import FeatureStore
from visual_grounding.images.sources import open_images
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.index import Index, build_index
from visual_grounding.storage import whole_folder
from visual_grounding.storage.artefact import sha256_of_file


def test_report_escapes_text_embeds_pictures_and_marks_what_is_right(tmp_path):
    red = Image.new("RGB", (300, 200), "red")
    row = ReportRow(
        "a <bat> & $x$",
        [ReportImage(red, "1.jpg", 0.5), ReportImage(None, "2.jpg")],
        [("new", "Schläger", True), ("old", "x", False)],
    )
    write_report(
        tmp_path,
        "Title",
        [ReportSection("rows", [row, ReportRow("blind")])],
        ReportTable([["a", "b"], ["c", "1"]], "n"),
    )
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "a &lt;bat&gt; &amp; $x$" in page and "<bat>" not in page
    assert page.count("data:image/jpeg;base64,") == 1
    assert "<dd class=right>Schläger ✓</dd>" in page and "<dd class=wrong>x ✗</dd>" in page
    assert "<th>a</th><th>b</th>" in page and "<td>c</td><td>1</td>" in page
    assert "0.50 1.jpg" in page and "no image" in page
    with Image.open(tmp_path / "report.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    assert (pixels == (255, 0, 0)).all(axis=1).sum() > 5000  # the red picture is there


def test_report_command_shows_each_sentence_with_its_own_images(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for number in range(3):
        Image.new("RGB", (20, 20), (number * 60, 0, 0)).save(images / f"{number}.png")
    store = write_store(tmp_path / "store", np.ones((3, 1, 2)), ["0.png", "1.png", "2.png"])
    digest = sha256_of_file(store / "keys.txt")
    ids = write_image_ids(tmp_path / "ids", np.array([[2, 0], [-1, -1]], np.int32), digest)
    (tmp_path / "text.en").write_text("one\ntwo\n")
    (tmp_path / "out.de").write_text("eins\nzwei\n")
    flags = ["--text", tmp_path / "text.en", "--image-ids", ids, "--image-features", store, "--images", images]
    done = run_command(
        "visual-grounding", "report", *flags, "--output", f"new={tmp_path / 'out.de'}", "--out", tmp_path / "page"
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page/report.html").read_text(encoding="utf-8")
    assert page.index("one") < page.index("2.png") < page.index("0.png") < page.index("two")
    assert "1.png" not in page and "eins" in page and "zwei" in page
    assert "another text" not in done.stderr
    (tmp_path / "file").write_text("")
    refused = [
        (["--rows", "0,2"], tmp_path / "page2", "0..1, the lines of the text, but has 2"),
        (["--sample", "-1"], tmp_path / "page2", "--sample should be 1 or more, but is -1"),
        ([], tmp_path / "file" / "page", "can't be written: Not a directory"),
    ]
    for more, out, message in refused:
        done = run_command("visual-grounding", "report", *flags, *more, "--out", out)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_report_command_warns_of_another_text(tmp_path):
    Image.new("RGB", (20, 20)).save(tmp_path / "0.png")
    store = write_store(tmp_path / "store", np.ones((1, 1, 2)), ["0.png"])
    (tmp_path / "0.keys").write_text("0.png\n")
    (tmp_path / "text").write_text("one\n")
    (tmp_path / "other").write_text("two\n")
    flags = ["--text", tmp_path / "text", "--out", tmp_path / "ids"]
    store_flags = ["--image-features", store]
    done = run_command(
        "visual-grounding", "retrieve", "--method", "paired", "--keys", tmp_path / "0.keys", *store_flags, *flags
    )
    assert done.returncode == 0, done.stderr
    shown = [*store_flags, "--image-ids", tmp_path / "ids", "--images", tmp_path, "--out", tmp_path / "page"]
    for text, warned in (("text", False), ("other", True)):
        done = run_command("visual-grounding", "report", "--text", tmp_path / text, *shown)
        said = (
            f"ids was made for another text than {tmp_path / text}, of as many lines: a sample of them is 0.0 % alike."
        )
        assert done.returncode == 0 and (said in done.stderr) is warned, done.stderr


def test_report_shows_what_a_retriever_found_with_scores_and_keys(tmp_path):
    """No translation is needed, and the page needs no other file."""
    keys = [f"{row}.png" for row in range(5)]
    (tmp_path / "photos").mkdir()
    for row, key in enumerate(keys):
        Image.new("RGB", (12, 8), (50 * row, 0, 0)).save(tmp_path / "photos" / key)
    store = write_store(tmp_path / "store", np.random.default_rng(0).normal(size=(5, 1, 6)), keys)
    retriever = make_retriever(tmp_path / "retriever")
    build_index(retriever, FeatureStore(store), tmp_path / "index")
    sentences = make_sentences()
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in sentences))
    retrieve_dense(retriever, Index(tmp_path / "index"), sentences, tmp_path / "ids", 3)
    flags = {"text": "text", "image-ids": "ids", "image-features": "store", "images": "photos", "out": "page"}
    named = [word for flag, name in flags.items() for word in (f"--{flag}", str(tmp_path / name))]
    assert main(["report", *named, "--rows", "0,3"]) == 0
    page = (tmp_path / "page/report.html").read_text(encoding="utf-8")
    ids = ImageIds(tmp_path / "ids")
    shown = re.findall(r"<figcaption title='([^']*)'", page)
    assert shown == [f"{float(score):.2f} {keys[row]}" for row, score in zip(ids.ids[0], ids.scores[0])]
    assert sentences[0] in page and "no image" in page  # sentence 3 is empty
    assert re.findall(r"(?:src|href)='([^']{11})", page) == ["data:image/"] * 3
    assert (tmp_path / "page/report.png").stat().st_size > 1000


def test_report_of_a_large_store_keeps_only_the_keys_it_shows(tmp_path):
    images = 200_000
    keys = [f"folder/with/a/long/name/{row:09d}.png" for row in range(images)]
    store = FeatureStore(write_store(tmp_path / "store", np.ones((images, 1, 1)), keys))
    table = write_image_ids(tmp_path / "ids", np.array([[images - 1, 7]], np.int32), store.keys_sha256)
    Image.new("RGB", (4, 4)).save(tmp_path / "one.png")
    expected = [keys[-1], keys[7]]
    del keys
    source = open_images(tmp_path)
    tracemalloc.start()
    ((last, seventh),) = images_of_sentences(ImageIds(table), [0], store, source, 8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [last.key, seventh.key] == expected
    assert peak < 2_000_000  # all keys would be 18 MB


def test_picture_wraps_long_sentences_so_that_they_leave_the_images_free(tmp_path):
    red = Image.new("RGB", (112, 112), "red")
    heights = {}
    for name, text in (("short", "a dog"), ("long", "a very long sentence about a dog " * 20)):
        row = ReportRow(text, [ReportImage(red, "1.jpg")], [("translation", text, None)])
        write_report(tmp_path / name, "Title", [ReportSection("rows", [row])])
        with Image.open(tmp_path / name / "report.png") as picture:
            pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
            heights[name] = picture.height
        assert (pixels == (255, 0, 0)).all(axis=1).sum() > 0.99 * 112 * 112  # no letter lies on the picture
    assert heights["long"] > heights["short"] + 200


@pytest.mark.parametrize(
    ("size", "kept"),
    [((4000, 3000), (299, 224)), ((60_000, 1), (896, 1)), ((1, 30_000), (1, 896)), ((300, 90), (300, 90))],
)
def test_pictures_are_kept_no_larger_than_a_page_shows_them(tmp_path, size, kept):
    """A thin one of a few kilobytes would be laid into a square of gigabytes."""
    Image.new("RGB", size, "red").save(tmp_path / "a.png")
    found = load_picture(open_images(tmp_path), "a.png", {"a.png": 0})
    assert found.image.size == kept and found.size == size
    assert max(letterbox(found.image).size) == max(kept)


def test_a_page_that_is_too_long_for_matplotlib_is_drawn_smaller(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LONGEST", 900)
    write_report(tmp_path / "out", "title", [ReportSection("all", [ReportRow("text", [])] * 20)])
    with Image.open(tmp_path / "out/report.png") as picture:
        assert 850 < picture.height <= 900
    monkeypatch.setattr(module, "_PIXELS", 10**5)
    write_report(tmp_path / "out", "title", [ReportSection("all", [ReportRow("text", [])] * 20)])
    with Image.open(tmp_path / "out/report.png") as picture:
        assert 0.9e5 < picture.height * picture.width <= 1.01e5


@pytest.fixture
def sheet(tmp_path):
    """A text whose 4 images are half in a/, half in b/; gives the flags of `report` without --images."""
    keys = [f"{row}.png" for row in range(4)]
    for row, key in enumerate(keys):
        folder = tmp_path / "ab"[row // 2]
        folder.mkdir(exist_ok=True)
        Image.new("RGB", (12, 8), (60 * row, 0, 0)).save(folder / key)
    (tmp_path / "other").mkdir()
    Image.new("RGB", (12, 8)).save(tmp_path / "other/x.png")
    store = FeatureStore(write_store(tmp_path / "store", np.ones((4, 1, 6)), keys))
    write_image_ids(tmp_path / "ids", np.array([[0, 1], [2, 3], [3, 0]], np.int32), store.keys_sha256)
    (tmp_path / "text").write_text("one\ntwo\nthree\n")
    flags = {"text": "text", "image-ids": "ids", "image-features": "store", "out": "page"}
    return ["report", *(word for flag, name in flags.items() for word in (f"--{flag}", str(tmp_path / name)))]


def shown_pictures(folder):
    return (folder / "page/report.html").read_text(encoding="utf-8").count("src='data:image/")


def test_report_adds_up_images_of_several_sources(sheet, tmp_path, capsys):
    assert main([*sheet, "--images", str(tmp_path / "a"), "--images", str(tmp_path / "b")]) == 0
    assert shown_pictures(tmp_path) == 6 and capsys.readouterr().err == ""


def test_report_says_how_many_pictures_are_missing_and_where_they_were_looked_for(sheet, tmp_path, capsys):
    (tmp_path / "a/1.png").write_bytes(b"<html>")
    sources = ["--images", str(tmp_path / "a"), "--images", str(tmp_path / "other")]
    assert main([*sheet, *sources]) == 0
    assert capsys.readouterr().err == (
        f"warning: 3 of 4 pictures can't be shown: 2 aren't in {tmp_path / 'a'} and {tmp_path / 'other'}, such as "
        "2.png (keys there look like 0.png); 1 are unreadable, such as 1.png (not an image).\n"
    )
    assert shown_pictures(tmp_path) == 2
    page = (tmp_path / "page/report.html").read_text(encoding="utf-8")
    assert page.count("<img alt='not there'>") == 3 and page.count("<img alt='not an image'>") == 1


def test_report_without_any_of_its_pictures_is_refused(sheet, tmp_path, capsys):
    assert main([*sheet, "--images", str(tmp_path / "other")]) == 2
    assert capsys.readouterr().err == (
        f"visual-grounding report: 4 of 4 pictures can't be shown: 4 aren't in {tmp_path / 'other'}, such as 0.png "
        "(keys there look like x.png). Give what the store was extracted from as --images; several add up.\n"
    )
    assert not (tmp_path / "page").exists()


def test_report_of_sentences_without_images_misses_none(sheet, tmp_path, capsys):
    write_image_ids(tmp_path / "none", np.full((3, 2), -1, np.int32), FeatureStore(tmp_path / "store").keys_sha256)
    flags = [str(tmp_path / "none") if word == str(tmp_path / "ids") else word for word in sheet]
    assert main([*flags, "--images", str(tmp_path / "other")]) == 0
    assert capsys.readouterr().err == ""


def test_killed_at_any_step_a_page_is_of_the_run_that_drew_its_picture(tmp_path):
    def write(title: str) -> None:
        write_report(tmp_path, title, [ReportSection("rows", [ReportRow(title)])], texts={"more": title})

    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    whole = {}
    for title in ("new", "old"):
        write(title)
        whole[title] = contents()
    assert set(whole["new"]) == {"report.html", "report.png", "more"} and whole["new"] != whole["old"]
    left = []
    steps = ((Figure, "savefig"), (whole_folder, "_flush"), (whole_folder, "_exchange"), (whole_folder, "sync_folder"))
    for _ in killed_at_each_step(lambda: write("new"), *steps):
        found = contents()
        left += [title for title in whole if found == whole[title]] or ["a mixture"]
        write("old")
    assert len(left) > 3 and left == ["old"] * (len(left) - 1) + ["new"]


def test_a_line_of_a_megabyte_is_shown_by_its_beginning(tmp_path):
    rows = [ReportRow("ab " * 400_000, [], [("long", "x" * 1_000_000, None)]), ReportRow("short", [], [])]
    write_report(tmp_path / "out", "title", [ReportSection("all", rows)])
    page = (tmp_path / "out/report.html").read_text()
    assert len(page) < 10_000 and "… (1200000 letters)" in page and "… (1000000 letters)" in page and "short" in page
    assert rows[0].source == "ab " * 400_000
    with Image.open(tmp_path / "out/report.png") as picture:
        assert picture.height < 5000


def test_picture_has_its_title_above_and_the_images_of_a_sentence_beside_each_other(tmp_path):
    images = [ReportImage(Image.new("RGB", (112, 112), colour), "1.jpg") for colour in ("red", "blue", "lime")]
    write_report(tmp_path / "out", "A title", [ReportSection("rows", [ReportRow("a dog", images)])])
    with Image.open(tmp_path / "out/report.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    places = []
    for colour in ((255, 0, 0), (0, 0, 255), (0, 255, 0)):
        ys, xs = np.nonzero((pixels == colour).all(axis=2))
        assert len(xs) > 0.99 * 112 * 112  # nothing lies on it
        places.append((xs.min(), xs.max(), ys.min()))
    (_, first_end, top), (second, second_end, second_top), (third, _, third_top) = places
    assert first_end < second and second_end < third and top == second_top == third_top
    assert (pixels[: top // 2, : pixels.shape[1] // 3] < 100).all(axis=2).any()  # the title's letters
    assert (pixels[top + 112 : top + 132, places[0][0] : places[0][1]] < 160).all(axis=2).any()  # the key's, below


def test_title_section_and_sentence_stand_out_and_notes_do_not(tmp_path, monkeypatch):
    drawn = {}
    save = Figure.savefig

    def look(figure, *given, **named):
        drawn.update({text.get_text(): text for text in figure.texts})
        return save(figure, *given, **named)

    monkeypatch.setattr(Figure, "savefig", look)
    rows = [ReportRow("a sentence", [], [("model", "ein Satz", None)])]
    table = ReportTable([["system", "BLEU", "chrF"], ["ours", "30.1", "55.2"]], "a note on the table")
    write_report(tmp_path / "out", "A title", [ReportSection("A part", rows, "a note on the part")], table)
    heads = {"A title", "A part", "a sentence", "system", "BLEU", "chrF"}
    notes = {"a note on the table", "a note on the part", "model"}
    assert heads | notes | {"ein Satz", "ours", "30.1", "55.2"} <= drawn.keys()
    assert {text for text, artist in drawn.items() if artist.get_fontweight() == "bold"} == heads
    grey = drawn["model"].get_color()
    assert {text for text, artist in drawn.items() if text and artist.get_color() == grey} == notes
    assert grey != drawn["a sentence"].get_color()
    assert drawn["a note on the table"].get_fontsize() < drawn["ein Satz"].get_fontsize()
    for first, second, third in (("system", "BLEU", "chrF"), ("ours", "30.1", "55.2")):
        edges = [(box.x0, box.x1) for box in (drawn[cell].get_window_extent() for cell in (first, second, third))]
        assert edges[0][1] < edges[1][0] and edges[1][1] < edges[2][0]  # no column lies on the next
    assert (
        drawn["ours"].get_window_extent().x0
        == drawn["system"].get_window_extent().x0
        == drawn["A title"].get_window_extent().x0
    )
