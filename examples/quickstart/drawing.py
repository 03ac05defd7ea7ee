"""The pictures of the quickstart's world: one thing in one scene, drawn with Pillow.

Where the thing's square lies, how large, mirrored and tilted it is, the hues, the light and the noise are random:
they say nothing about what the thing is.
"""

import colorsys
from dataclasses import dataclass

import numpy as np
from pen import Colour, Pen, blend
from PIL import Image
from scenes import SCENES
from things import THINGS

IMAGE_SIZE = 96  # pixels; large enough to look at
OVERSAMPLING = 3  # drawn this much larger, then reduced: smooth edges

COLOURS = {
    "red": (214, 60, 52),
    "blue": (58, 108, 206),
    "green": (72, 158, 76),
    "yellow": (238, 200, 58),
    "brown": (146, 96, 58),
    "grey": (142, 146, 154),
    "purple": (142, 84, 178),
}
SIZES = {"small": (0.46, 0.54), "big": (0.66, 0.74)}  # half the thing's square, in half picture widths
PLACES = {"left": -0.3, "middle": 0.0, "right": 0.3}  # centre of the thing's square, -1..1


@dataclass(frozen=True)
class Look:
    """What varies and can be told in words: the words of a sentence are true of these three."""

    colour: str  # a key of COLOURS
    size: str  # a key of SIZES
    place: str  # a key of PLACES


INK: Colour = (38, 32, 44)


def _pale(rng: np.random.Generator) -> Colour:
    red, green, blue = colorsys.hsv_to_rgb(rng.uniform(), rng.uniform(0.06, 0.24), rng.uniform(0.86, 0.99))
    return round(255 * red), round(255 * green), round(255 * blue)


def _scene_colours(rng: np.random.Generator) -> list[Colour]:
    upper, lower = _pale(rng), _pale(rng)
    depth = rng.uniform(0.08, 0.17)
    dark: Colour = (70, 70, 90)
    light, deep, ink = blend(upper, (255, 255, 255), 0.5), blend(upper, dark, depth), blend(lower, dark, depth + 0.1)
    return [upper, light, deep, lower, ink]


def _thing_colours(name: str, rng: np.random.Generator) -> list[Colour]:
    jitter = rng.integers(-16, 17, 3)
    red, green, blue = np.clip(np.asarray(COLOURS[name]) + jitter, 0, 255).tolist()
    main: Colour = (red, green, blue)
    other = COLOURS[str(rng.choice([c for c in COLOURS if c != name]))]
    return [main, blend(main, (255, 255, 255), 0.5), blend(main, INK, 0.35), blend(other, (255, 255, 255), 0.25), INK]


def draw_picture(thing: str, scene: str, look: Look, rng: np.random.Generator) -> Image.Image:
    """Draw `thing` in `scene` as `look` says; everything else (tilt, mirror, hues, light, noise) comes from `rng`.

    The same generator state gives the same picture, and the thing takes no numbers from it: two things drawn from one
    state differ in nothing but the thing.
    """
    width = IMAGE_SIZE * OVERSAMPLING
    scene_colours = _scene_colours(rng)
    canvas = Image.new("RGB", (width, width), scene_colours[0])
    back = Pen(canvas, scene_colours, mirrored=bool(rng.integers(2)))
    back.edge = 0
    horizon = rng.uniform(0.1, 0.4)
    back.box(-1, horizon, 1, 1, back.second)
    SCENES[scene](back)
    reach = rng.uniform(*SIZES[look.size])
    low, high = -1 + reach, 1 - reach  # the whole square stays in the picture
    centre = np.clip([PLACES[look.place] + rng.uniform(-0.08, 0.08), rng.uniform(-0.2, 0.35)], low, high)
    tilt, mirrored = rng.uniform(-0.2, 0.2), bool(rng.integers(2))
    pen = Pen(canvas, _thing_colours(look.colour, rng), (centre[0], centre[1]), reach, tilt, mirrored)
    THINGS[thing](pen)
    small = np.asarray(canvas.reduce(OVERSAMPLING), dtype=np.float32)  # (IMAGE_SIZE, IMAGE_SIZE, 3)
    light = rng.uniform(0.82, 1.05) * rng.uniform(0.92, 1.08, 3)
    grain = rng.normal(0, rng.uniform(1, 6), (IMAGE_SIZE, IMAGE_SIZE, 1))
    return Image.fromarray(np.clip(small * light + grain, 0, 255).round().astype(np.uint8))
