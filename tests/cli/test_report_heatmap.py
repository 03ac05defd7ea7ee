"""`report heatmap`: a planted thing is found where it is, in the page, the PNG, the JSON and the pointing game."""

import json

import numpy as np
import pytest
import torch
from conftest import write_image_ids, write_store
from faults.steps import killed_at_each_step
from PIL import Image, ImageDraw

from visual_grounding.cli.main import main
from visual_grounding.features.backbones import Preprocessing
from visual_grounding.features.store import FEATURE_STORE
from visual_grounding.modules.joint_embedding import JointEmbedding, JointEmbeddingConfig
from visual_grounding.retrieval.image_ids import IMAGE_IDS
from visual_grounding.retrieval.joint_embedding import save_joint_embedding
from visual_grounding.storage import whole_folder
from visual_grounding.storage.artefact import META, read_meta, sha256_of_file, write_json
from visual_grounding.text.words import Vocabulary, WordTokenizer

WORDS = ["dog", "ball", "sky"]
KEYS = ["a.png", "b.png", "c.png"]


@pytest.fixture
def world(tmp_path):
    """3 pictures of 4x4 cells; channel w of a cell says that word w is there. Words and cells are projected by 1.

    a: dog in cell (row 1, column 2), ball in (3, 0).  b: dog in (0, 0).  c: absent.  Framing 64/48 of 128x64 pixels:
    the network sees columns 40..88 and rows 8..56, so a cell is 12 pixels wide.
    """
    embedding = JointEmbedding(JointEmbeddingConfig("bag", "linear", 3, 3, vocabulary_size=7, text_embed_size=3))
    with torch.no_grad():
        for tower in (embedding.text, embedding.image):
            tower.projection.weight.copy_(torch.eye(3))
        embedding.text.encoder.embedding.weight.zero_()
        embedding.text.encoder.embedding.weight[4:] = torch.eye(3)
    save_joint_embedding(tmp_path / "retriever", embedding, WordTokenizer(Vocabulary(WORDS)), "planted")
    features = np.zeros((3, 4, 4, 3))
    features[:2, ..., 2] = 1  # sky everywhere
    features[0, 1, 2, 0] = features[0, 3, 0, 1] = features[1, 0, 0, 0] = 3
    store = write_store(tmp_path / "store", features.reshape(3, 16, 3), KEYS)
    meta = read_meta(store, FEATURE_STORE)
    meta["plan"]["preprocessing"] = Preprocessing(64, 48).describe()
    write_json(store / META, meta)
    (tmp_path / "photos").mkdir()
    for key in KEYS:
        Image.new("RGB", (128, 64), "grey").save(tmp_path / "photos" / key)
    return tmp_path


def run(world, *flags, out="out"):
    common = ["--retriever", world / "retriever", "--image-features", world / "store", "--images", world / "photos"]
    return main(["report", "heatmap", *map(str, [*common, "--device", "cpu", "--out", world / out, *flags])])


def result(world, out="out"):
    return json.loads((world / out / "heatmap.json").read_text())


def test_pairs_show_each_text_where_it_is(world, capsys):
    (world / "pairs.tsv").write_text("b.png\tdog\nc.png\tdog\na.png\tunheard\n")
    assert run(world, "--pair", "a.png", "a dog", "--pair", "a.png", "ball", "--pairs", world / "pairs.tsv") == 0
    maps = {(shown["key"], shown["text"]): shown for shown in result(world)["maps"]}
    assert {name: shown["peak"] for name, shown in maps.items()} == {
        ("a.png", "a dog"): [0.625, 0.375],
        ("a.png", "ball"): [0.125, 0.875],
        ("b.png", "dog"): [0.125, 0.125],
    }
    assert np.argmax(maps["a.png", "ball"]["map"]) == 12
    page = (world / "out/report.html").read_text()
    assert page.count("data:image/jpeg;base64,") == 6 and "http" not in page.replace("<!doctype html>", "")
    assert "framing:64/48" in page and "framing:64/48" in result(world)["signature"]
    output = capsys.readouterr()
    assert "2 of 5 have no map" in output.err and "3 of 5 texts over their images" in output.out
    with Image.open(world / "out/report.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    assert ((pixels[..., 0] > pixels[..., 2] + 50).any()) and (pixels.max(axis=-1) < 60).any()  # warm, and unseen


def test_overlay_is_warm_at_the_peak_and_dark_where_nothing_was_seen():
    from visual_grounding.analysis.overlay import draw_overlay
    from visual_grounding.features.framing import Framing

    grid = torch.zeros(4, 4)
    grid[1, 2] = 1
    picture = Image.new("RGB", (128, 64), (128, 128, 128))
    pixels = np.asarray(draw_overlay(picture, grid, Framing(64, 48).window(128, 64))).astype(int)
    hot, cold, unseen = pixels[26, 70], pixels[50, 45], pixels[32, 10]
    assert hot[0] > hot[2] + 50 and cold[2] > cold[0] and unseen.max() < 60
    marked = np.asarray(draw_overlay(picture, grid, Framing(64, 48).window(128, 64), [], (0.5, 0.5)))
    assert (marked != pixels).any()
    grey = Image.new("RGB", (128, 64), (213, 213, 213))
    unseen = np.asarray(draw_overlay(grey, grid, Framing(64, 48).window(128, 64)))[32, 10]
    assert unseen.tolist() == [75, 75, 75]  # 0.35 × 213 = 74.55
    # Where the map is lowest, 0.45 × 213 and 0.55 of turbo's first colour, (0.190, 0.072, 0.232) × 255.
    lowest = np.asarray(draw_overlay(grey, grid, Framing(64, 48).window(128, 64)))[54, 42]
    assert lowest.tolist() == [122, 106, 128]
    # A picture that stands is that which lies, turned.
    standing = draw_overlay(picture.transpose(Image.Transpose.TRANSPOSE), grid.T, Framing(64, 48).window(64, 128))
    assert np.array_equal(np.asarray(standing).transpose(1, 0, 2), pixels)


def test_best_image_of_each_line(world, capsys):
    (world / "text").write_text("dog\nball\nsky\n")
    ids = np.array([[1, 0], [0, 1], [-1, -1]], np.int32)
    write_image_ids(world / "ids", ids, sha256_of_file(world / "store/keys.txt"))
    assert run(world, "--text", world / "text", "--image-ids", world / "ids") == 0
    assert [(shown["key"], shown["text"]) for shown in result(world)["maps"]] == [("b.png", "dog"), ("a.png", "ball")]
    assert "another text" not in capsys.readouterr().err
    write_json(world / "ids" / META, {**read_meta(world / "ids", IMAGE_IDS), "text_sha256": "of something else"})
    assert run(world, "--text", world / "text", "--image-ids", world / "ids", out="again") == 0
    assert f"warning: {world / 'ids'} was made for another text than {world / 'text'}, or" in capsys.readouterr().err


def test_killed_at_any_step_a_page_shows_the_maps_of_its_json(world):
    def show(text):
        assert run(world, "--pair", "a.png", text) == 0

    def shown():
        return [name for name in ("dog", "ball") if f"<div class=source>{name}<" in page.read_text()]

    page = world / "out/report.html"
    show("dog")
    pages = []
    steps = ((whole_folder, "_flush"), (whole_folder, "_exchange"), (whole_folder, "sync_folder"))
    for _ in killed_at_each_step(lambda: show("ball"), *steps):
        pages.append(shown())
        assert pages[-1] == [each["text"] for each in result(world)["maps"]]
        show("dog")
    assert pages == [["dog"]] * 3 + [["ball"]]  # all but the last are before the exchange or at it


BOXES = """image\tx1\ty1\tx2\ty2\tphrase
a.png\t60\t20\t80\t40\tdog
a.png\t0\t0\t20\t20\tball
a.png\t40\t44\t50\t56\tball
b.png\t60\t28\t68\t36\ta dog
b.png\t0\t0\t30\t60\tball
c.png\t0\t0\t30\t60\tdog
d.png\t0\t0\t30\t60\tdog
b.png\t0\t0\t99\t60\tunheard
"""


def test_pointing_game_counts_hits_beside_the_middle_of_the_picture(world, capsys):
    # a dog: the peak is at 40 + 0.625 * 48 = 70 and 8 + 0.375 * 48 = 26, in its box, as is the middle 64, 32.
    # a ball: 46, 50: in its second box. b dog: 46, 14, but the box is round the middle. b ball lies outside.
    (world / "boxes.tsv").write_text(BOXES)
    assert run(world, "--boxes", world / "boxes.tsv") == 0
    game = result(world)["pointing_game"]
    outcomes = {(o["key"], o["phrase"]): (o["point"], o["hit"], o["centre_hit"]) for o in game.pop("outcomes")}
    assert outcomes["a.png", "dog"] == ([70, 26], True, True)
    assert outcomes["a.png", "ball"] == ([46, 50], True, False)
    assert outcomes["b.png", "a dog"] == ([46, 14], False, True)
    assert outcomes["b.png", "ball"][1:] == (False, False) and len(outcomes) == 4
    assert game == {
        "phrases": 4,
        "hits": 2,
        "centre_hits": 2,
        "outside": 1,
        "rate": 0.5,
        "centre_rate": 0.5,
        "phrases_in_file": 7,
        "left_out": {"image isn't in --image-features": 1, "image has no features, or phrase no word": 2},
    }
    output = capsys.readouterr().out
    assert "2 of 4 phrases hit (50.0%); the middle of the picture hits 2 (50.0%)" in output
    assert "7 phrases with 8 boxes" in output and "3 left out" in output
    assert "1 left out: image isn't in --image-features" in output
    assert "1 phrases lie wholly outside of what the network saw; they count as missed" in output


def test_pointing_game_takes_the_size_that_boxes_were_drawn_on(world, capsys):
    (world / "boxes.tsv").write_text(
        "image\tx1\ty1\tx2\ty2\tphrase\twidth\theight\na.png\t600\t200\t800\t400\tdog\t1280\t640\n"
    )
    (world / "photos/a.png").unlink()  # the size is known without it
    assert run(world, "--boxes", world / "boxes.tsv") == 0
    assert "warning: 1 of 1 pictures can't be shown: 1 aren't in" in capsys.readouterr().err
    assert result(world)["pointing_game"]["hits"] == 1


def test_pointing_game_leaves_out_pictures_that_it_has_no_size_of(world, capsys):
    (world / "boxes.tsv").write_text(BOXES)
    (world / "photos/a.png").write_text("broken")
    assert run(world, "--boxes", world / "boxes.tsv") == 0
    assert "2 left out: picture isn't in --images, or is unreadable" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "Exactly one of these should say what to show"),
        (["--pair", "a.png", "dog", "--boxes", "x"], "but 2 of them are given"),
        (["--text", "x"], "--text and --image-ids belong together"),
        (["--pair", "a.png", "dog", "--sample", "0"], "--sample should be 1 or more, but is 0"),
        (["--pair", "a.png", "dog", "--channels", "4"], "--channels should be 1 to 3, the joint size, but is 4"),
        (
            ["--pair", "a.png", "dog", "--framing", "x"],
            "and no more than 4 times the picture, but is 'x'. See --framing.",
        ),
        (["--pair", "z.png", "dog"], "but has no z.png; 1 such"),
    ],
)
def test_report_heatmap_refuses(world, capsys, flags, message):
    assert run(world, *flags) == 2
    assert message in capsys.readouterr().err


def test_report_heatmap_refuses_a_store_that_is_no_grid_or_has_no_framing(world, capsys):
    rng = np.random.default_rng(0)
    for regions, message in (
        (1, "should hold a grid of n x n regions an image, but has 1"),
        (5, "but has 5. Make one with"),
        (4, "doesn't say how its pictures were resized and cropped. Say it: --framing whole"),
    ):
        write_store(world / f"store{regions}", rng.normal(size=(3, regions, 3)), KEYS)
        assert run(world, "--pair", "a.png", "dog", "--image-features", world / f"store{regions}") == 2
        assert message in capsys.readouterr().err
    assert run(world, "--pair", "a.png", "dog", "--image-features", world / "store4", "--framing", "whole") == 0


def test_report_heatmap_refuses_boxes_of_which_none_can_be_asked(world, capsys):
    (world / "boxes.tsv").write_text("image\tx1\ty1\tx2\ty2\tphrase\nd.png\t0\t0\t30\t60\tdog\n")
    assert run(world, "--boxes", world / "boxes.tsv") == 2
    assert "has 1 phrases, but none can be asked (image isn't in --image-features: 1)" in capsys.readouterr().err


def test_pictures_that_are_missing_are_counted_and_no_page_is_made_of_missing_ones_alone(world, capsys):
    (world / "photos/b.png").rename(world / "b.png")
    assert run(world, "--pair", "a.png", "dog", "--pair", "b.png", "dog") == 0
    said = f"warning: 1 of 2 pictures can't be shown: 1 aren't in {world / 'photos'}, such as b.png (keys there look"
    assert said in capsys.readouterr().err
    assert run(world, "--pair", "b.png", "dog", out="none") == 2
    assert "1 of 1 pictures can't be shown" in capsys.readouterr().err and not (world / "none").exists()
    (world / "more").mkdir()
    (world / "b.png").rename(world / "more/b.png")
    assert run(world, "--images", world / "more", "--pair", "b.png", "dog") == 0
    assert "can't be shown" not in capsys.readouterr().err


def test_box_is_outlined_in_white_with_black_inside():
    from visual_grounding.analysis.overlay import outline
    from visual_grounding.features.framing import Box

    picture = Image.new("L", (100, 50), 128)
    outline(ImageDraw.Draw(picture), Box(0.2, 0.2, 0.8, 0.8), 100, 50)  # 20..80 x 10..40
    pixels = np.asarray(picture)
    assert pixels[25, 19:25].tolist() == [128, 255, 0, 0, 128, 128]
    assert pixels[25, 76:82].tolist() == [128, 128, 0, 0, 255, 128]
    assert pixels[9:15, 50].tolist() == [128, 255, 0, 0, 128, 128]
    assert pixels[36:42, 50].tolist() == [128, 128, 0, 0, 255, 128]
