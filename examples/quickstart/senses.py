"""Draw what the quickstart is about: one sentence, two pictures, two translations, and where the model looked.

    python examples/quickstart/senses.py --run examples/quickstart/out

OUT/senses.png: for the first ambiguous nouns of language.py, their first sentence of *paired*, and the first of
*retrieved*. Nothing is chosen by how it came out.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from language import AMBIGUOUS, Noun
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from score import is_right

from visual_grounding.analysis.hypotheses import read_hypotheses
from visual_grounding.features.store import FeatureStore
from visual_grounding.probes.trained import Trained, load_split, load_trained
from visual_grounding.retrieval.image_ids import ImageIds

PAIRED, RETRIEVED = 3, 2  # nouns of which a sentence is shown
PICTURES = 8  # found for a sentence of *retrieved*
GRID = 4  # regions of a picture are a grid of 4 x 4
PAPER, INK, GREY, MARK, RIGHT, WRONG = "#ffffff", "#1d2733", "#5b6775", "#b45309", "#11713d", "#b3261e"
SENSES = {noun.german: noun for pair in AMBIGUOUS for noun in pair}


class Shown(NamedTuple):
    """A sentence with its pictures, and what was made of it.

    Attributes:
        looked: (N, R) share of the ambiguous noun's attention, picture by picture; its sum is 1.
    """

    noun: Noun
    source: str
    pictures: list[Image.Image]
    looked: np.ndarray
    with_pictures: str
    text_only: str


def sense_of(noun: Noun) -> str:
    """A sense in English, as the thing is drawn.

    >>> sense_of(AMBIGUOUS[0][0])
    'bat (animal)'
    """
    return f"{noun.english} ({noun.drawing.partition('_')[2].replace('_', ' ')})"


def attention_on_regions(trained: Trained, dataset: Any, row: int, word: int) -> np.ndarray:
    """How a source word's attention is spread over the regions of its pictures, mean over heads.

    Shapes:
        returns: (N, R); its sum is 1.
    """
    sample = dataset.collater([dataset[row]])
    attention = trained.model.encoder.fusion.attention
    seen = []
    with torch.no_grad(), attention.register_forward_pre_hook(lambda _, inputs: seen.append(inputs)):
        trained.model.encoder.forward_torchscript(sample["net_input"])
        weights = attention.weights(*seen[0])[0, :, word].mean(dim=0)  # (N·R,)
    images = sample["net_input"]["visual"]["features"].shape[1]
    return weights.view(images, -1).numpy()


def read_shown(run: Path, test: str, split: str, store: str, senses: Sequence[Noun]) -> list[Shown]:
    """The first sentence of a test with each of these senses; with the second sense of a noun, the same once more."""
    text = run / "world/text"
    source = (text / f"{test}.en").read_text(encoding="utf-8").splitlines()
    answers = [line.split("\t")[2] for line in (text / f"{test}.answers.tsv").read_text(encoding="utf-8").splitlines()]
    hypotheses = {name: read_hypotheses(run / f"translations/{test}.{name}.txt") for name in ("images", "text_only")}
    settings = {
        "data": str(run / "bin"),
        "image_features": str(run / "features" / store),
        "image_ids": str(run / "ids"),
    }
    trained = load_trained(run / "images/checkpoint_best.pt", "grounded_translation", torch.device("cpu"), settings)
    dataset = load_split(trained, split)
    ids, features = ImageIds(run / "ids" / split), FeatureStore(run / "features" / store)
    found: list[Shown] = []
    for noun in senses:
        same = found[-1].source if found and found[-1].noun.english == noun.english else None
        row = next(i for i, german in enumerate(answers) if german == noun.german and source[i] == (same or source[i]))
        looked = attention_on_regions(trained, dataset, row, source[row].split().index(noun.english))
        keys = [features.key(int(image)) for image in ids.ids[row, : len(looked)]]
        pictures = [Image.open(run / f"world/images/{store}/{key}").convert("RGB") for key in keys]
        lines = (hypotheses[name][row] for name in ("images", "text_only"))
        found.append(Shown(noun, source[row], pictures, looked, *lines))
    return found


def lit(picture: Image.Image, looked: np.ndarray) -> np.ndarray:
    """A picture that is as light as it was looked at: the most attended region as it is, others darker.

    Shapes:
        looked: (R,) of a grid;  returns: (h, w, 3)
    """
    pixels = np.asarray(picture, dtype=np.float32) / 255
    light = Image.fromarray((looked / looked.max()).reshape(GRID, GRID).astype(np.float32))
    light = np.asarray(light.resize(picture.size, Image.Resampling.BICUBIC)).clip(0, 1)[..., None]
    return pixels * (0.2 + 0.8 * light)


class Page:
    """A figure to write on from the top, in inches."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width, height), dpi=95, facecolor=PAPER)

    def write(self, x: float, y: float, text: str, colour: str = INK, size: float = 10.5, **style: Any) -> float:
        """Returns where the text ends."""
        drawn = self.figure.text(
            x / self.width, 1 - y / self.height, text, color=colour, fontsize=size, va="top", parse_math=False, **style
        )
        return x + drawn.get_window_extent().width / self.figure.dpi

    def sentence(self, x: float, y: float, text: str, word: str, colour: str, size: float = 10.5) -> float:
        """A sentence of which a word is marked; returns where it ends."""
        for each in text.split():
            marked = each == word
            x = self.write(x, y, each, colour if marked else INK, size, fontweight="bold" if marked else "normal")
            x += 0.045 * size / 10.5
        return x

    def judged(self, x: float, y: float, name: str, text: str, noun: Noun) -> None:
        """A translation whose noun is marked, right or wrong."""
        (other,) = {each.german for pair in AMBIGUOUS if noun in pair for each in pair} - {noun.german}
        right = is_right(text, noun.german, other)
        self.write(x, y, name, GREY, 8.5)
        said = next((word for word in text.split() if word in SENSES), "")
        end = self.sentence(x, y + 0.17, text, said, RIGHT if right else WRONG)
        self.write(end + 0.03, y + 0.17, "✓" if right else "✗", RIGHT if right else WRONG)

    def picture(self, x: float, y: float, side: float, pixels: Any) -> Axes:
        """A square picture."""
        place = (x / self.width, 1 - (y + side) / self.height, side / self.width, side / self.height)
        axes = self.figure.add_axes(place, xticks=[], yticks=[])
        axes.imshow(pixels)
        axes.spines[:].set_visible(False)
        return axes


def draw(path: Path, paired: Sequence[Shown], retrieved: Sequence[Shown]) -> None:
    """Write the picture.

    Args:
        paired: both senses of each noun, one behind the other.
    """
    page = Page(14.3, 1.5 + 1.85 * len(paired) / 2 + 1.85 * len(retrieved))
    page.write(0.25, 0.2, "One sentence, two pictures, two translations", size=15, fontweight="bold")
    y = 0.75
    for pair in zip(paired[::2], paired[1::2]):
        page.sentence(0.25, y, pair[0].source, pair[0].noun.english, MARK, 12.5)
        for x, shown in zip((0.25, 7.25), pair):
            page.picture(x, y + 0.34, 1.2, shown.pictures[0])
            page.picture(x + 1.27, y + 0.34, 1.2, lit(shown.pictures[0], shown.looked[0]))
            page.write(x + 2.6, y + 0.36, f"{sense_of(shown.noun)}: {shown.noun.german}", MARK, fontweight="bold")
            page.judged(x + 2.6, y + 0.66, "with this picture", shown.with_pictures, shown.noun)
            page.judged(x + 2.6, y + 1.11, "text only", shown.text_only, shown.noun)
        y += 1.85
    page.write(0.25, y - 0.22, "Right of each picture, light: where the marked word looked.", GREY, 8.5)
    y += 0.2
    page.write(0.25, y, "One sentence, eight pictures that were found for it", size=15, fontweight="bold")
    y += 0.5
    for shown in retrieved:
        page.sentence(0.25, y, shown.source, shown.noun.english, MARK, 12.5)
        shares = shown.looked.sum(axis=1)  # (N,)
        for number, (picture, share) in enumerate(zip(shown.pictures, shares)):
            x = 0.25 + 0.82 * number
            axes = page.picture(x, y + 0.34, 0.76, picture)
            if number == shares.argmax():
                axes.spines[:].set(visible=True, color=MARK, linewidth=2.5)
            page.write(x + 0.38, y + 1.16, f"{share:.0%}", MARK if number == shares.argmax() else GREY, 9, ha="center")
        page.write(0.25, y + 1.36, "the marked word’s attention by picture; outlined: most of it", GREY, 8.5)
        x = 0.25 + 0.82 * PICTURES + 0.15
        page.write(x, y + 0.36, f"{sense_of(shown.noun)}: {shown.noun.german}", MARK, fontweight="bold")
        page.judged(x, y + 0.66, "with these pictures", shown.with_pictures, shown.noun)
        page.judged(x, y + 1.11, "text only", shown.text_only, shown.noun)
        y += 1.85
    whole = path.with_name(f"{path.name}.new")  # which a killed run leaves, not half of the picture
    page.figure.savefig(whole, format="png")
    whole.replace(path)


def main() -> None:
    """Draw the picture of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="the folder of run.sh")
    run = parser.parse_args().run
    both = [sense for pair in AMBIGUOUS[:PAIRED] for sense in pair]
    seconds = [pair[1] for pair in AMBIGUOUS[:RETRIEVED]]
    paired = read_shown(run, "paired", "test", "pairs", both)
    retrieved = read_shown(run, "retrieved", "test1", "collection", seconds)
    draw(run / "senses.png", paired, retrieved)
    print(f"One sentence, two pictures, two translations: {run / 'senses.png'}")


if __name__ == "__main__":
    main()
