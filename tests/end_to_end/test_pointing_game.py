"""The pointing game on real photos: a retriever of a few minutes points better than chance, and at its own text."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from commands import run_command

from visual_grounding.analysis.pointing_game import read_boxes

USUAL_SIDES = (281, 333, 375, 400, 500)  # of these photos, whose longer side has 500 pixels


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def size_of(boxes: list[dict[str, str]]) -> tuple[int, int] | None:
    """Width and height, where boxes that reach to the right and to the bottom tell them; the files don't say."""
    reach = max(int(box["x2"]) for box in boxes), max(int(box["y2"]) for box in boxes)
    sides = [next((side for side in USUAL_SIDES if side - 2 <= end <= side), 0) for end in reach]
    if 500 not in sides or 0 in sides:
        return None
    return max(sides[0], reach[0]), max(sides[1], reach[1])


def write_world(data: Path, folder: Path) -> None:
    """keys, captions.{train,valid}.tsv, and boxes.tsv of photos that are not trained on."""
    photos = rows(data / "flickr8k/images.tsv")
    (folder / "keys").write_text("".join(f"{photo['image']}\n" for photo in photos))
    for split, name in (("train", "train"), ("dev", "valid")):
        with open(folder / f"captions.{name}.tsv", "w", encoding="utf-8") as file:
            for line in rows(data / "flickr8k/captions.tsv"):
                if line["split"] == split:
                    file.write(f"{line['image']}\t{line['caption']}\n")
    held_out = {p["image"].split("_")[0] + ".jpg": p["image"] for p in photos if p["split"] != "train"}
    by_photo: dict[str, list[dict[str, str]]] = {}
    for part in ("val", "test"):
        for box in rows(data / f"downstream/flickr30k_entities/boxes_{part}.tsv"):
            if box["image"] in held_out:
                by_photo.setdefault(held_out[box["image"]], []).append(box)
    with open(folder / "boxes.tsv", "w", encoding="utf-8") as file:
        file.write("image\tx1\ty1\tx2\ty2\tphrase\twidth\theight\n")
        for key, boxes in by_photo.items():
            size = size_of(boxes)
            for box in boxes if size is not None else ():
                corners = [box[name] for name in ("x1", "y1", "x2", "y2")]
                file.write("\t".join([key, *corners, box["phrase"], *map(str, size or ())]) + "\n")


@pytest.mark.slow
@pytest.mark.data
def test_maps_of_a_trained_retriever_point_at_what_the_text_names(real_data, tmp_path, user_dir):
    write_world(real_data, tmp_path)
    grid = real_data / "flickr8k/features/mobilenet1.0_grid4x4_pca192.npy"

    def run(name, *arguments):
        done = run_command(name, *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("visual-grounding", "import", "--arrays", grid, "--keys", "keys", "--out", "grid")
    captions = ["--train", "captions.train.tsv", "--valid", "captions.valid.tsv"]
    run("visual-grounding", "prepare", *captions, "--out", "captions")
    run(
        "fairseq-train", "captions", "--user-dir", user_dir, "--task", "image_text_matching",
        "--image-features", "grid", "--arch", "visual_semantic_embedding", "--text-encoder", "bag",
        "--joint-size", 512, "--text-embed-size", 300, "--image-dropout", 0.3, "--text-dropout", 0.3,
        "--joint-batch-norm", "--criterion", "hardest_negative_triplet", "--triplet-direction", "both",
        "--optimizer", "adam", "--lr", 0.002, "--lr-scheduler", "polynomial_decay", "--total-num-update", 892,
        "--batch-size", 128, "--max-epoch", 4, "--seed", 1, "--cpu", "--no-progress-bar", "--no-epoch-checkpoints",
        "--disable-validation", "--save-dir", "checkpoints",
    )  # fmt: skip
    run(
        "visual-grounding", "export", "--checkpoint", "checkpoints/checkpoint_last.pt", "--data", "captions",
        "--out", "retriever",
    )  # fmt: skip
    (tmp_path / "photos.txt").write_text((tmp_path / "keys").read_text())  # the photos themselves aren't needed
    output = run(
        "visual-grounding", "report", "heatmap", "--retriever", "retriever", "--image-features", "grid",
        "--images", "photos.txt", "--framing", "whole", "--boxes", "boxes.tsv", "--out", "heat",
    )  # fmt: skip
    game = json.loads((tmp_path / "heat/heatmap.json").read_text())["pointing_game"]
    phrases = {(phrase.key, phrase.text): phrase for phrase in read_boxes(tmp_path / "boxes.tsv")}
    assert game["phrases"] == len(phrases) > 300 and not game["left_out"], output
    middles = (np.arange(4) + 0.5) / 4
    chance, other = [], []
    points = {(outcome["key"], outcome["phrase"]): outcome["point"] for outcome in game["outcomes"]}
    for (key, text), phrase in phrases.items():
        width, height = phrase.size
        chance += [any(box.holds(x * width, y * height) for box in phrase.boxes) for x in middles for y in middles]
        told_otherwise = [points[key, another] for k, another in phrases if k == key and another != text]
        other += [any(box.holds(*point) for box in phrase.boxes) for point in told_otherwise]
    print(f"{output}a cell by chance: {np.mean(chance):.3f}; maps of the photo's other phrases: {np.mean(other):.3f}")
    assert game["rate"] > np.mean(chance) + 0.1
    assert game["rate"] > np.mean(other) + 0.05
