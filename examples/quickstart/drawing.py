"""The pictures of the quickstart's world: one thing in one scene, drawn with Pillow.

`THINGS` and `SCENES` are tables from a name to a small drawing function. A thing is drawn in its own square, x and y in
-1..1, y downwards; `draw_picture` chooses where that square lies, how large, mirrored and tilted it is, the colours, the
light and the noise. Colour is drawn at random, so it says nothing about what the thing is; a scene is two random pale hues.
"""

import colorsys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

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

Colour = tuple[int, int, int]
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Look:
    """What varies and can be told: the words of a sentence are true of these three."""

    colour: str  # a key of COLOURS
    size: str  # a key of SIZES
    place: str  # a key of PLACES


def blend(colour: Colour, other: Colour, share: float) -> Colour:
    """Mix `share` (0..1) of `other` into `colour`."""
    return tuple(round(a + (b - a) * share) for a, b in zip(colour, other, strict=True))  # type: ignore[return-value]


def curve(points: Points, closed: bool, steps: int = 7) -> Points:
    """Round the corners: a Catmull-Rom curve through all points."""
    p = np.asarray(points, dtype=float)
    p = np.concatenate([p[-1:], p, p[:2]] if closed else [p[:1], p, p[-1:]])
    t = np.linspace(0, 1, steps, endpoint=False)[None, :, None]
    a, b, c, d = (p[i : len(p) - 3 + i, None, :] for i in range(4))
    q = 0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * (b - c) + d - a) * t**3)
    q = q.reshape(-1, 2)
    return [(x, y) for x, y in (q if closed else np.concatenate([q, p[-1:]]))]


def arc(x: float, y: float, rx: float, ry: float, start: float, stop: float, count: int = 16) -> Points:
    """Points on an ellipse between two angles in degrees, clockwise from the right."""
    return [(x + rx * np.cos(a), y + ry * np.sin(a)) for a in np.radians(np.linspace(start, stop, count))]


class Pen:
    """Draws in a square of its own, -1..1, that lies somewhere in the picture."""

    def __init__(
        self,
        canvas: Image.Image,
        colours: list[Colour],
        centre: tuple[float, float] = (0.0, 0.0),
        scale: float = 1.0,
        tilt: float = 0.0,
        mirrored: bool = False,
    ) -> None:
        self.main, self.light, self.deep, self.second, self.ink = colours
        self.white: Colour = (250, 250, 246)
        self._draw = ImageDraw.Draw(canvas)
        half = canvas.width / 2
        turn = np.array([[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]])
        self._matrix = half * scale * turn @ np.diag([-1.0 if mirrored else 1.0, 1.0])
        self._origin = half * (1 + np.asarray(centre))
        self._unit = half * scale
        self.edge = 0.055  # width of the ink line round every shape; 0 draws none

    def _at(self, points: Points) -> Points:
        return [(x, y) for x, y in np.asarray(points, dtype=float) @ self._matrix.T + self._origin]

    def shape(self, points: Points, fill: Colour, smooth: bool = False) -> None:
        """A filled polygon, or a closed curve, with an ink line round it."""
        at = self._at(curve(points, closed=True) if smooth else points)
        self._draw.polygon(at, fill)
        if self.edge:
            self._draw.line([*at, *at[:2]], self.ink, max(1, round(self.edge * self._unit)), joint="curve")

    def oval(self, x: float, y: float, rx: float, ry: float, fill: Colour) -> None:
        """An ellipse round (x, y)."""
        self.shape(arc(x, y, rx, ry, 0, 360, 25)[:-1], fill)

    def box(self, x0: float, y0: float, x1: float, y1: float, fill: Colour) -> None:
        """A rectangle."""
        self.shape([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], fill)

    def dot(self, x: float, y: float, radius: float, fill: Colour | None = None) -> None:
        """A disc without an ink line: eyes, buttons."""
        self._draw.polygon(self._at(arc(x, y, radius, radius, 0, 360, 17)[:-1]), fill or self.ink)

    def line(self, points: Points, width: float = 0.06, fill: Colour | None = None, smooth: bool = False) -> None:
        """A stroke with round ends; with `fill`, a band of that colour with an ink line on both sides."""
        points = curve(points, closed=False) if smooth else points
        at = self._at(points)
        bands = [(width, self.ink)] if fill is None else [(width + 2 * self.edge, self.ink), (width, fill)]
        for broad, colour in bands if self.edge else [(width, fill or self.ink)]:
            self._draw.line(at, colour, max(1, round(broad * self._unit)), joint="curve")
            for x, y in (points[0], points[-1]):
                self.dot(x, y, broad / 2, colour)


# ---------------------------------------------------------------- the two senses of the ambiguous nouns


def bat_animal(p: Pen) -> None:
    for s in (1, -1):
        wing = [(0.1, -0.15), (0.4, -0.6), (0.98, -0.5), (0.9, 0.3), (0.7, 0.05), (0.52, 0.42), (0.36, 0.12), (0.1, 0.45)]
        p.shape([(s * x, y) for x, y in wing], p.main)
        p.line([(s * 0.4, -0.55), (s * 0.36, 0.1)], 0.04)
        p.line([(s * 0.42, -0.57), (s * 0.7, 0.04)], 0.04)
        p.shape([(s * 0.04, -0.45), (s * 0.22, -0.8), (s * 0.25, -0.35)], p.deep)
    p.oval(0, 0.18, 0.2, 0.42, p.deep)
    p.oval(0, -0.3, 0.26, 0.24, p.deep)
    for s in (1, -1):
        p.dot(s * 0.1, -0.34, 0.07, p.white)
        p.dot(s * 0.1, -0.33, 0.035)
        p.shape([(s * 0.03, -0.18), (s * 0.1, -0.18), (s * 0.065, -0.07)], p.white)


def bat_club(p: Pen) -> None:
    blade = [(-0.78, 0.72), (-0.7, 0.8), (-0.1, 0.3), (0.62, -0.42), (0.78, -0.72), (0.7, -0.84), (0.52, -0.78), (0.2, -0.5), (-0.3, 0.1)]
    p.shape(blade, p.main, smooth=True)
    p.line([(-0.66, 0.67), (-0.36, 0.37)], 0.13, p.second)
    for t in (0.1, 0.2, 0.3):
        p.line([(-0.73 + t, 0.6 - t), (-0.58 + t, 0.72 - t)], 0.035)
    p.oval(-0.76, 0.77, 0.11, 0.11, p.deep)
    p.line([(0.25, -0.4), (0.58, -0.7)], 0.06, p.light)
    p.oval(0.5, 0.5, 0.26, 0.26, p.white)
    p.line(arc(0.28, 0.5, 0.2, 0.26, -50, 50, 8), 0.04)
    p.line(arc(0.72, 0.5, 0.2, 0.26, 130, 230, 8), 0.04)


def crane_bird(p: Pen) -> None:
    for x in (-0.2, 0.02):
        p.line([(x, 0.2), (x + 0.03, 0.92), (x + 0.18, 0.95)], 0.055)
    p.shape([(-0.25, -0.12), (-0.95, 0.22), (-0.7, 0.28), (-0.85, 0.42), (-0.2, 0.32)], p.deep)
    p.oval(-0.15, 0.08, 0.45, 0.28, p.main)
    p.line([(0.18, 0.0), (0.48, -0.2), (0.3, -0.5), (0.42, -0.78)], 0.13, p.light, smooth=True)
    p.shape([(0.5, -0.86), (0.98, -0.7), (0.5, -0.7)], p.second)
    p.oval(0.44, -0.78, 0.15, 0.13, p.main)
    p.dot(0.47, -0.8, 0.04)
    p.line([(-0.5, 0.02), (-0.2, 0.2), (0.12, 0.1)], 0.045, smooth=True)


def crane_machine(p: Pen) -> None:
    p.box(-0.55, 0.8, 0.15, 0.96, p.deep)
    p.box(-0.32, -0.45, -0.08, 0.8, p.light)
    for i in range(5):
        y = 0.8 - 0.25 * i
        p.line([(-0.32, y), (-0.08, y - 0.25)], 0.045)
        p.line([(-0.08, y), (-0.32, y - 0.25)], 0.045)
    p.box(-0.85, -0.64, 0.97, -0.47, p.main)
    for i in range(9):
        p.line([(-0.75 + 0.19 * i, -0.48), (-0.66 + 0.19 * i, -0.63)], 0.035)
    p.box(-0.93, -0.6, -0.62, -0.22, p.deep)
    p.shape([(-0.32, -0.64), (-0.2, -0.98), (-0.08, -0.64)], p.main)
    p.line([(-0.2, -0.95), (0.85, -0.64)], 0.035)
    p.box(-0.08, -0.47, 0.16, -0.2, p.second)
    p.line([(0.7, -0.47), (0.7, 0.02)], 0.04)
    p.line(arc(0.66, 0.14, 0.11, 0.13, -70, 160, 8), 0.06)


def seal_animal(p: Pen) -> None:
    p.shape([(-0.62, 0.4), (-0.98, 0.12), (-0.9, 0.42), (-0.99, 0.7), (-0.6, 0.58)], p.deep)
    body = [(-0.75, 0.5), (-0.3, 0.22), (0.1, -0.1), (0.25, -0.55), (0.52, -0.72), (0.8, -0.52), (0.72, -0.2), (0.62, 0.3), (0.5, 0.62), (-0.1, 0.66)]
    p.shape(body, p.main, smooth=True)
    p.shape([(0.3, -0.1), (0.55, 0.1), (0.48, 0.45), (0.1, 0.58), (0.2, 0.2)], p.light, smooth=True)
    p.shape([(0.3, 0.35), (0.05, 0.75), (0.3, 0.85), (0.52, 0.5)], p.deep)
    p.oval(0.72, -0.43, 0.16, 0.11, p.light)
    p.dot(0.83, -0.47, 0.055)
    p.dot(0.52, -0.53, 0.06)
    for y in (-0.4, -0.3):
        p.line([(0.72, y), (0.99, y + 0.06)], 0.025)


def seal_stamp(p: Pen) -> None:
    p.shape([(-0.4, 0.3), (-0.55, 0.97), (-0.3, 0.82), (-0.1, 0.97), (-0.02, 0.3)], p.second)
    p.shape([(0.4, 0.3), (0.55, 0.97), (0.3, 0.82), (0.1, 0.97), (0.02, 0.3)], p.second)
    rim = [((0.72 + 0.07 * (-1) ** i) * np.cos(a), -0.15 + (0.72 + 0.07 * (-1) ** i) * np.sin(a)) for i, a in enumerate(np.linspace(0, 2 * np.pi, 25)[:-1])]
    p.shape(rim, p.main, smooth=True)
    p.oval(0, -0.15, 0.53, 0.53, p.light)
    star = [((0.4 - 0.22 * (i % 2)) * np.sin(a), -0.15 - (0.4 - 0.22 * (i % 2)) * np.cos(a)) for i, a in enumerate(np.linspace(0, 2 * np.pi, 11)[:-1])]
    p.shape(star, p.deep)


def bow_weapon(p: Pen) -> None:
    p.line([(-0.25, -0.9), (-0.45, 0.0), (-0.25, 0.9)], 0.025)
    p.line([(-0.25, -0.9), (0.2, -0.68), (0.42, 0.0), (0.2, 0.68), (-0.25, 0.9)], 0.11, p.main, smooth=True)
    p.line([(0.42, -0.13), (0.42, 0.13)], 0.16, p.second)
    p.line([(-0.62, 0.0), (0.85, 0.0)], 0.06)
    p.shape([(0.74, -0.13), (0.99, 0.0), (0.74, 0.13)], p.deep)
    for y in (-0.15, 0.15):
        p.shape([(-0.5, 0.0), (-0.72, 0.0), (-0.92, y), (-0.68, y)], p.second)


def bow_ribbon(p: Pen) -> None:
    for s in (1, -1):
        p.shape([(0, 0.0), (s * 0.65, 0.78), (s * 0.4, 0.72), (s * 0.28, 0.92), (s * -0.08, 0.15)], p.deep)
    for s in (1, -1):
        p.shape([(0, -0.1), (s * 0.5, -0.62), (s * 0.92, -0.55), (s * 0.92, 0.25), (s * 0.5, 0.3)], p.main, smooth=True)
        p.shape([(s * 0.2, -0.12), (s * 0.6, -0.38), (s * 0.74, -0.15), (s * 0.58, 0.08)], p.deep, smooth=True)
    p.oval(0, -0.1, 0.19, 0.22, p.light)


def pipe_smoking(p: Pen) -> None:
    p.line([(-0.28, 0.45), (0.25, 0.34), (0.92, -0.1)], 0.1, p.deep, smooth=True)
    p.line([(0.78, 0.0), (0.94, -0.1)], 0.13, p.second)
    p.shape([(-0.78, -0.18), (-0.72, 0.5), (-0.5, 0.72), (-0.22, 0.62), (-0.12, 0.3), (-0.16, -0.18)], p.main)
    p.oval(-0.47, -0.2, 0.32, 0.12, p.deep)
    p.line([(-0.68, 0.02), (-0.64, 0.42)], 0.06, p.light)
    p.line([(-0.47, -0.32), (-0.62, -0.52), (-0.35, -0.7), (-0.5, -0.95)], 0.05, p.white, smooth=True)


def pipe_tube(p: Pen) -> None:
    p.shape([(-0.9, -0.62), (0.2, -0.62), (0.5, -0.5), (0.62, -0.2), (0.62, 0.88), (0.1, 0.88), (0.1, -0.1), (-0.9, -0.1)], p.main)
    p.line([(-0.6, -0.48), (0.15, -0.48), (0.38, -0.38), (0.48, -0.15), (0.48, 0.6)], 0.06, p.light)
    p.box(-0.97, -0.74, -0.72, 0.02, p.deep)
    p.box(-0.02, 0.66, 0.74, 0.92, p.deep)
    for y in (-0.62, -0.36, -0.1):
        p.dot(-0.845, y, 0.05)
    for x in (0.1, 0.36, 0.62):
        p.dot(x, 0.79, 0.05)


def palm_tree(p: Pen) -> None:
    p.shape([(-0.3, 0.95), (-0.05, 0.3), (0.02, -0.3), (0.16, -0.3), (0.14, 0.35), (0.0, 0.95)], p.deep)
    for y in (0.75, 0.5, 0.25, 0.0):
        p.line([(-0.13 + 0.1 * (0.75 - y), y), (0.1 + 0.05 * (0.75 - y), y)], 0.04)
    fronds = [(-0.95, -0.3), (-0.8, 0.1), (0.95, -0.3), (0.92, 0.12), (-0.55, -0.85), (0.65, -0.88)]
    for x, y in fronds:
        mid = (0.5 * x + 0.06, -0.5 + 0.3 * (y + 0.3) - 0.2)
        p.shape([(0.08, -0.38), mid, (x, y), (mid[0] * 0.95, mid[1] + 0.26)], p.main, smooth=True)
    for x in (-0.04, 0.2):
        p.oval(x, -0.22, 0.11, 0.11, p.second)


def palm_hand(p: Pen) -> None:
    fingers = [((-0.34, 0.0), (-0.5, -0.55)), ((-0.11, -0.1), (-0.16, -0.8)), ((0.13, -0.1), (0.18, -0.76)), ((0.34, 0.0), (0.5, -0.5))]
    for foot, tip in fingers:
        p.line([foot, tip], 0.2, p.main)
    p.line([(-0.3, 0.5), (-0.6, 0.25), (-0.8, 0.0)], 0.2, p.main, smooth=True)
    p.shape([(-0.46, 0.0), (0.46, 0.0), (0.46, 0.5), (0.28, 0.78), (0.26, 0.96), (-0.24, 0.96), (-0.26, 0.78), (-0.46, 0.5)], p.main)
    for foot, tip in fingers:  # open the ink line between hand and finger
        edge, p.edge = p.edge, 0
        p.line([(foot[0], foot[1] + 0.12), tip], 0.2, p.main)
        p.edge = edge
    p.line([(-0.32, 0.25), (0.0, 0.14), (0.34, 0.22)], 0.04, smooth=True)
    p.line([(-0.2, 0.42), (0.05, 0.34), (0.34, 0.42)], 0.04, smooth=True)
    p.line([(-0.24, 0.28), (-0.02, 0.5), (-0.08, 0.76)], 0.04, smooth=True)


def letter_mail(p: Pen) -> None:
    p.box(-0.92, -0.58, 0.92, 0.62, p.light)
    p.line([(-0.9, 0.6), (-0.2, 0.02)], 0.05)
    p.line([(0.9, 0.6), (0.2, 0.02)], 0.05)
    p.shape([(-0.92, -0.58), (0.92, -0.58), (0.0, 0.2)], p.main)
    p.shape([(0.0, 0.3), (-0.2, 0.06), (-0.1, -0.04), (0.0, 0.04), (0.1, -0.04), (0.2, 0.06)], p.second)


def letter_sign(p: Pen) -> None:
    p.shape([(-0.85, 0.9), (-0.22, -0.9), (0.22, -0.9), (0.85, 0.9), (0.45, 0.9), (0.3, 0.42), (-0.3, 0.42), (-0.45, 0.9)], p.main)
    p.shape([(0.0, -0.48), (0.2, 0.14), (-0.2, 0.14)], p.second)
    p.line([(-0.62, 0.74), (-0.14, -0.66)], 0.06, p.light)


def key_lock(p: Pen) -> None:
    p.box(-0.1, -0.11, 0.95, 0.11, p.main)
    p.shape([(0.5, 0.11), (0.5, 0.42), (0.62, 0.42), (0.62, 0.28), (0.72, 0.28), (0.72, 0.48), (0.87, 0.48), (0.87, 0.11)], p.main)
    p.oval(-0.5, 0, 0.46, 0.46, p.main)
    p.oval(-0.55, 0, 0.22, 0.22, p.white)
    p.box(-0.02, -0.2, 0.1, 0.2, p.deep)


def key_button(p: Pen) -> None:
    p.shape([(-0.7, -0.82), (0.7, -0.82), (0.92, 0.78), (0.8, 0.9), (-0.8, 0.9), (-0.92, 0.78)], p.deep)
    p.shape([(-0.55, -0.72), (0.55, -0.72), (0.66, 0.4), (0.58, 0.5), (-0.58, 0.5), (-0.66, 0.4)], p.light)
    p.line([(0.3, -0.45), (0.3, 0.08), (-0.28, 0.08)], 0.09)
    p.line([(-0.1, -0.14), (-0.32, 0.08), (-0.1, 0.3)], 0.09)


def plane_air(p: Pen) -> None:
    p.shape([(-0.7, -0.1), (-0.95, -0.62), (-0.72, -0.62), (-0.4, -0.12)], p.second)
    p.shape([(0.12, 0.0), (-0.12, -0.52), (0.06, -0.52), (0.45, -0.08)], p.deep)
    p.shape([(-0.9, -0.1), (-0.3, -0.2), (0.5, -0.2), (0.85, -0.08), (0.97, 0.06), (0.8, 0.18), (0.2, 0.22), (-0.5, 0.14)], p.main, smooth=True)
    p.shape([(0.15, 0.1), (-0.38, 0.66), (-0.12, 0.66), (0.5, 0.1)], p.second)
    for x in (-0.3, -0.1, 0.1, 0.3, 0.5):
        p.dot(x, -0.06, 0.055, p.white)
    p.shape([(0.7, -0.13), (0.9, -0.02), (0.7, -0.02)], p.white)


def plane_tool(p: Pen) -> None:
    p.shape([(-0.95, 0.1), (0.9, 0.1), (0.95, 0.55), (-0.95, 0.55)], p.main)
    p.line([(-0.8, 0.4), (0.75, 0.4)], 0.06, p.light)
    p.shape([(-0.7, 0.1), (-0.82, -0.4), (-0.62, -0.58), (-0.48, -0.4), (-0.5, -0.1), (-0.3, 0.1)], p.deep, smooth=True)
    p.line([(0.62, 0.08), (0.62, -0.1)], 0.12, p.deep)
    p.oval(0.62, -0.25, 0.2, 0.18, p.deep)
    p.shape([(-0.05, 0.1), (-0.32, -0.55), (-0.14, -0.6), (0.2, 0.1)], p.second)
    p.line([(0.15, 0.02), (0.3, -0.25), (0.12, -0.45), (0.0, -0.25), (0.14, -0.18)], 0.06, p.white, smooth=True)
    p.line([(-0.99, 0.66), (0.99, 0.66)], 0.05)


def fan_folding(p: Pen) -> None:
    p.shape([(0, 0.75), *arc(0, 0.75, 0.98, 1.35, -160, -20, 15)], p.main)
    p.shape([*arc(0, 0.75, 0.98, 1.35, -160, -20, 15), *arc(0, 0.75, 0.74, 1.0, -20, -160, 15)], p.second)
    for a in np.radians(np.linspace(-160, -20, 9)):
        p.line([(0, 0.75), (0.98 * np.cos(a), 0.75 + 1.35 * np.sin(a))], 0.04)
    p.shape([(0, 0.8), *arc(0, 0.75, 0.36, 0.5, -160, -20, 9)], p.deep)
    p.oval(0, 0.78, 0.09, 0.09, p.light)


def fan_electric(p: Pen) -> None:
    p.box(-0.08, 0.3, 0.08, 0.85, p.deep)
    p.oval(0, 0.87, 0.42, 0.1, p.deep)
    p.oval(0, -0.24, 0.72, 0.72, p.light)
    for a in (0.3, 2.39, 4.49):
        blade = [(0.0, 0.0), (0.2, -0.18), (0.58, -0.18), (0.62, 0.14), (0.25, 0.14)]
        c, s = np.cos(a), np.sin(a)
        p.shape([(c * x - s * y, -0.24 + s * x + c * y) for x, y in blade], p.main, smooth=True)
    p.oval(0, -0.24, 0.14, 0.14, p.second)
    p.line(arc(0, -0.24, 0.45, 0.45, 0, 360, 25), 0.025)


def nut_food(p: Pen) -> None:
    p.shape([(0.25, -0.62), (0.45, -0.95), (0.95, -0.85), (0.7, -0.5)], p.second, smooth=True)
    p.shape([(-0.62, -0.1), (-0.4, 0.62), (0.0, 0.95), (0.4, 0.62), (0.62, -0.1)], p.main, smooth=True)
    cap = [(-0.78, -0.15), (-0.66, -0.58), (0, -0.78), (0.66, -0.58), (0.78, -0.15), (0.55, 0.08), (0.36, -0.08), (0.18, 0.1), (0, -0.06), (-0.18, 0.1), (-0.36, -0.08), (-0.55, 0.08)]
    p.shape(cap, p.deep)
    p.line([(0, -0.75), (0.06, -0.97)], 0.09)
    p.line([(-0.3, 0.2), (-0.16, 0.55)], 0.07, p.light)


def nut_metal(p: Pen) -> None:
    hexagon = [(0.82 * np.cos(a), 0.82 * np.sin(a)) for a in np.radians(np.arange(0, 360, 60))]
    p.shape([(x + 0.08, y + 0.16) for x, y in hexagon], p.deep)
    p.shape([(x - 0.06, y - 0.1) for x, y in hexagon], p.main)
    p.oval(-0.06, -0.1, 0.52, 0.52, p.light)
    p.oval(-0.06, -0.1, 0.38, 0.38, p.ink)
    p.line(arc(-0.06, -0.1, 0.28, 0.28, 30, 150, 9), 0.05, p.light)


def bolt_lightning(p: Pen) -> None:
    p.shape([(0.15, -0.97), (-0.62, 0.12), (-0.08, 0.12), (-0.32, 0.97), (0.62, -0.22), (0.08, -0.22), (0.55, -0.97)], p.main)
    p.line([(0.2, -0.82), (-0.36, 0.0)], 0.06, p.light)


def bolt_screw(p: Pen) -> None:
    p.box(-0.24, -0.5, 0.24, 0.92, p.light)
    for i in range(6):
        y = -0.1 + 0.17 * i
        p.line([(-0.27, y + 0.07), (0.27, y - 0.05)], 0.07)
    p.shape([(-0.7, -0.92), (0.7, -0.92), (0.7, -0.5), (-0.7, -0.5)], p.main)
    p.line([(-0.25, -0.9), (-0.25, -0.52)], 0.05)
    p.line([(0.25, -0.9), (0.25, -0.52)], 0.05)
    p.box(-0.82, -0.5, 0.82, -0.38, p.deep)


def tank_army(p: Pen) -> None:
    p.line([(0.2, -0.36), (0.98, -0.48)], 0.09, p.deep)
    p.shape([(-0.5, -0.1), (-0.4, -0.55), (0.25, -0.55), (0.42, -0.1)], p.main)
    p.box(-0.2, -0.68, 0.08, -0.55, p.deep)
    p.shape([(-0.85, 0.2), (-0.7, -0.12), (0.72, -0.12), (0.92, 0.2)], p.main)
    p.shape([(-0.95, 0.35), (-0.8, 0.14), (0.8, 0.14), (0.95, 0.35), (0.75, 0.66), (-0.75, 0.66)], p.deep)
    for x in (-0.64, -0.32, 0.0, 0.32, 0.64):
        p.oval(x, 0.4, 0.14, 0.14, p.light)
    p.dot(-0.05, -0.32, 0.1, p.second)


def tank_fish(p: Pen) -> None:
    p.box(-0.92, -0.72, 0.92, 0.78, p.white)
    p.box(-0.92, -0.45, 0.92, 0.78, p.light)
    p.box(-0.92, 0.56, 0.92, 0.78, p.deep)
    for x in (-0.7, -0.52):
        p.line([(x, 0.56), (x + 0.1, 0.3), (x - 0.06, 0.1), (x + 0.04, -0.15)], 0.06, p.second, smooth=True)
    for x, y in ((0.3, -0.05), (-0.05, 0.32)):
        p.shape([(x - 0.2, y), (x - 0.4, y - 0.17), (x - 0.4, y + 0.17)], p.main)
        p.oval(x, y, 0.26, 0.15, p.main)
        p.dot(x + 0.13, y - 0.03, 0.04)
    for x, y in ((0.66, -0.2), (0.74, 0.05), (0.64, 0.28)):
        p.oval(x, y, 0.05, 0.05, p.white)


def bass_fish(p: Pen) -> None:
    p.shape([(-0.45, 0.05), (-0.97, -0.4), (-0.84, 0.08), (-0.97, 0.52)], p.deep)
    p.shape([(-0.35, -0.3), (-0.15, -0.72), (0.05, -0.55), (0.2, -0.68), (0.42, -0.3)], p.second)
    p.shape([(-0.1, 0.35), (-0.2, 0.68), (0.2, 0.42)], p.second)
    p.shape([(-0.6, 0.05), (-0.2, -0.38), (0.4, -0.38), (0.97, 0.08), (0.4, 0.45), (-0.2, 0.42)], p.main, smooth=True)
    for x in (-0.25, -0.02, 0.2):
        p.line([(x, -0.28), (x - 0.05, 0.12)], 0.07)
    p.line(arc(0.36, 0.04, 0.14, 0.34, -75, 75, 8), 0.045)
    p.oval(0.64, -0.08, 0.1, 0.1, p.white)
    p.dot(0.66, -0.08, 0.045)
    p.line([(0.95, 0.1), (0.72, 0.2)], 0.04)


def bass_music(p: Pen) -> None:
    p.line([(0, 0.85), (0, 0.98)], 0.06)
    p.box(-0.07, -0.85, 0.07, 0.0, p.deep)
    p.oval(0, -0.89, 0.11, 0.09, p.deep)
    for s in (1, -1):
        for y in (-0.85, -0.7):
            p.line([(s * 0.08, y), (s * 0.22, y)], 0.06)
    right = [(0.12, -0.32), (0.34, -0.22), (0.34, 0.0), (0.24, 0.14), (0.3, 0.3), (0.5, 0.46), (0.46, 0.78), (0.2, 0.9)]
    p.shape([*right, *[(-x, y) for x, y in reversed(right)]], p.main, smooth=True)
    for s in (1, -1):
        p.line([(s * 0.24, 0.18), (s * 0.18, 0.32), (s * 0.26, 0.46)], 0.045, smooth=True)
        p.line([(s * 0.03, -0.8), (s * 0.03, 0.58)], 0.022)
    p.box(-0.16, 0.54, 0.16, 0.62, p.light)
    p.line([(0.62, 0.9), (0.82, -0.6)], 0.05, p.second)


# ---------------------------------------------------------------- unambiguous nouns


def cat(p: Pen) -> None:
    p.line([(-0.3, 0.8), (-0.8, 0.7), (-0.75, 0.2), (-0.95, -0.05)], 0.12, p.main, smooth=True)
    p.shape([(-0.45, 0.9), (-0.35, 0.2), (0.0, -0.1), (0.4, 0.2), (0.5, 0.9)], p.main, smooth=True)
    for s in (1, -1):
        p.shape([(0.05 + s * 0.12, -0.6), (0.05 + s * 0.42, -0.95), (0.05 + s * 0.44, -0.35)], p.deep)
    p.oval(0.05, -0.3, 0.47, 0.38, p.main)
    for s in (1, -1):
        p.dot(0.05 + s * 0.18, -0.36, 0.075, p.white)
        p.dot(0.05 + s * 0.18, -0.35, 0.04)
        p.line([(0.05 + s * 0.2, -0.17), (0.05 + s * 0.55, -0.13)], 0.025)
    p.shape([(-0.02, -0.22), (0.12, -0.22), (0.05, -0.13)], p.second)


def rabbit(p: Pen) -> None:
    for s in (1, -1):
        p.shape([(s * 0.08, -0.4), (s * 0.12, -0.95), (s * 0.3, -0.97), (s * 0.32, -0.4)], p.main, smooth=True)
        p.oval(s * 0.28, 0.88, 0.24, 0.1, p.light)
    p.oval(0, 0.5, 0.44, 0.42, p.main)
    p.oval(0, 0.55, 0.24, 0.28, p.light)
    p.oval(0, -0.15, 0.38, 0.34, p.main)
    for s in (1, -1):
        p.dot(s * 0.15, -0.2, 0.055)
    p.oval(0, -0.03, 0.07, 0.05, p.second)
    p.box(-0.06, 0.05, 0.06, 0.16, p.white)


def duck(p: Pen) -> None:
    p.shape([(-0.9, -0.02), (-0.55, 0.2), (0.2, 0.1), (0.5, 0.15), (0.55, 0.5), (0.1, 0.78), (-0.5, 0.7), (-0.8, 0.4)], p.main, smooth=True)
    p.shape([(0.62, -0.45), (0.98, -0.32), (0.62, -0.2)], p.second)
    p.oval(0.38, -0.3, 0.33, 0.32, p.main)
    p.dot(0.48, -0.38, 0.06)
    p.shape([(-0.5, 0.28), (0.15, 0.3), (0.0, 0.58), (-0.35, 0.55)], p.light, smooth=True)


def snail(p: Pen) -> None:
    for x in (0.6, 0.82):
        p.line([(0.68, 0.15), (x + 0.05, -0.32)], 0.05)
        p.dot(x + 0.05, -0.34, 0.08)
    p.shape([(-0.97, 0.72), (-0.5, 0.45), (0.35, 0.5), (0.55, 0.05), (0.85, 0.08), (0.9, 0.4), (0.6, 0.74)], p.light, smooth=True)
    p.oval(-0.15, 0.02, 0.58, 0.56, p.main)
    p.line([(-0.15 + (0.05 + 0.36 * t) * np.cos(11 * t), 0.02 + (0.05 + 0.36 * t) * np.sin(11 * t)) for t in np.linspace(0, 1, 30)], 0.07)


def turtle(p: Pen) -> None:
    for x in (-0.5, 0.35):
        p.oval(x, 0.52, 0.17, 0.22, p.light)
    p.shape([(-0.75, 0.3), (-0.97, 0.42), (-0.7, 0.45)], p.light)
    p.shape([(0.5, 0.3), (0.62, -0.05), (0.85, -0.12), (0.98, 0.06), (0.88, 0.25), (0.7, 0.42)], p.light, smooth=True)
    p.dot(0.82, 0.02, 0.05)
    p.shape([(-0.78, 0.4), *arc(-0.08, 0.4, 0.7, 0.85, 180, 360, 15)], p.main)
    p.shape([(-0.3, -0.08), (0.12, -0.08), (0.22, 0.2), (-0.08, 0.36), (-0.38, 0.2)], p.second)
    for a, b in (((-0.3, -0.08), (-0.4, -0.33)), ((0.12, -0.08), (0.22, -0.35)), ((0.22, 0.2), (0.6, 0.3)), ((-0.38, 0.2), (-0.74, 0.3))):
        p.line([a, b], 0.05)


def butterfly(p: Pen) -> None:
    for s in (1, -1):
        p.shape([(0, 0.0), (s * 0.35, -0.75), (s * 0.92, -0.72), (s * 0.85, -0.1)], p.main, smooth=True)
        p.shape([(0, 0.05), (s * 0.65, 0.08), (s * 0.75, 0.6), (s * 0.3, 0.75)], p.light, smooth=True)
        p.dot(s * 0.6, -0.45, 0.15, p.second)
        p.dot(s * 0.45, 0.38, 0.1, p.deep)
        p.line([(0, -0.4), (s * 0.25, -0.92)], 0.035)
    p.oval(0, 0.05, 0.09, 0.5, p.deep)


def cup(p: Pen) -> None:
    p.line(arc(0.5, 0.1, 0.35, 0.3, -80, 90, 12), 0.12, p.main)
    p.shape([(-0.68, -0.4), (0.56, -0.4), (0.44, 0.62), (0.3, 0.75), (-0.42, 0.75), (-0.56, 0.62)], p.main)
    p.oval(-0.06, -0.4, 0.62, 0.14, p.deep)
    p.line([(-0.5, 0.12), (0.38, 0.12)], 0.12, p.second)
    for x in (-0.25, 0.12):
        p.line([(x, -0.62), (x + 0.08, -0.75), (x - 0.04, -0.85), (x + 0.04, -0.97)], 0.04, p.white, smooth=True)


def chair(p: Pen) -> None:
    for x in (-0.48, 0.4):
        p.line([(x, 0.2), (x + 0.02, 0.92)], 0.1, p.deep)
    p.line([(0.62, 0.1), (0.66, 0.8)], 0.09, p.deep)
    for x in (-0.48, -0.1):
        p.line([(x, -0.9), (x, 0.1)], 0.1, p.deep)
    p.shape([(-0.5, -0.85), (-0.08, -0.92), (-0.08, -0.45), (-0.5, -0.38)], p.main)
    p.shape([(-0.58, 0.22), (-0.2, 0.0), (0.75, 0.0), (0.5, 0.22)], p.main)
    p.box(-0.58, 0.22, 0.5, 0.32, p.light)


def lamp(p: Pen) -> None:
    p.box(-0.06, -0.1, 0.06, 0.8, p.deep)
    p.oval(0, 0.84, 0.42, 0.11, p.deep)
    p.shape([(-0.3, -0.9), (0.3, -0.9), (0.7, -0.08), (-0.7, -0.08)], p.main)
    p.line([(-0.22, -0.8), (-0.5, -0.2)], 0.06, p.light)
    p.line([(0.35, -0.05), (0.35, 0.25)], 0.035)
    p.dot(0.35, 0.28, 0.06, p.second)


def book(p: Pen) -> None:
    p.shape([(0, -0.35), (-0.95, -0.5), (-0.95, 0.55), (0, 0.72), (0.95, 0.55), (0.95, -0.5)], p.main)
    for s in (1, -1):
        p.shape([(0, -0.3), (s * 0.4, -0.55), (s * 0.85, -0.52), (s * 0.85, 0.42), (s * 0.4, 0.4), (0, 0.6)], p.white)
        for y in (-0.3, -0.1, 0.1):
            p.line([(s * 0.18, y + 0.03), (s * 0.68, y - 0.03)], 0.04)
    p.line([(0, -0.3), (0, 0.62)], 0.05)


def car(p: Pen) -> None:
    p.shape([(-0.5, 0.0), (-0.3, -0.45), (0.3, -0.45), (0.58, 0.0)], p.light)
    p.line([(0.02, -0.43), (0.02, 0.0)], 0.06)
    p.shape([(-0.95, 0.02), (0.62, -0.05), (0.92, 0.1), (0.97, 0.42), (-0.95, 0.42)], p.main)
    for x in (-0.5, 0.52):
        p.oval(x, 0.42, 0.23, 0.23, p.ink)
        p.oval(x, 0.42, 0.1, 0.1, p.light)
    p.dot(0.86, 0.16, 0.07, p.second)


def boat(p: Pen) -> None:
    p.line([(0, 0.4), (0, -0.95)], 0.06)
    p.shape([(0.08, -0.88), (0.8, 0.2), (0.08, 0.2)], p.white)
    p.shape([(-0.08, -0.6), (-0.6, 0.2), (-0.08, 0.2)], p.second)
    p.shape([(-0.92, 0.34), (0.92, 0.34), (0.6, 0.82), (-0.62, 0.82)], p.main)
    p.line([(-0.72, 0.5), (0.72, 0.5)], 0.06, p.light)


def umbrella(p: Pen) -> None:
    p.line([(0, -0.3), (0, 0.75), (0.12, 0.9), (0.28, 0.85), (0.3, 0.7)], 0.07, p.deep, smooth=True)
    hem = [(0.95, 0.0), (0.62, -0.14), (0.32, 0.02), (0, -0.12), (-0.32, 0.02), (-0.62, -0.14), (-0.95, 0.0)]
    p.shape([*arc(0, 0.0, 0.95, 0.82, 180, 360, 15), *hem], p.main)
    p.shape([(0, -0.82), (0.22, -0.5), (0.32, 0.02), (0, -0.12), (-0.32, 0.02), (-0.22, -0.5)], p.second)
    p.line([(0, -0.82), (0, -0.96)], 0.06)


def apple(p: Pen) -> None:
    p.line([(0, -0.4), (0.08, -0.9)], 0.08)
    p.shape([(0.08, -0.62), (0.35, -0.92), (0.72, -0.8), (0.45, -0.55)], p.second, smooth=True)
    p.shape([(0, -0.4), (0.42, -0.55), (0.8, -0.15), (0.66, 0.5), (0.3, 0.88), (0, 0.78), (-0.3, 0.88), (-0.66, 0.5), (-0.8, -0.15), (-0.42, -0.55)], p.main, smooth=True)
    p.line([(-0.55, -0.12), (-0.48, 0.3)], 0.09, p.light)


def mushroom(p: Pen) -> None:
    p.shape([(-0.22, 0.0), (0.22, 0.0), (0.34, 0.85), (0.0, 0.92), (-0.34, 0.85)], p.white)
    p.shape([(-0.92, 0.12), *arc(0, 0.1, 0.92, 0.9, 185, 355, 13), (0.92, 0.12)], p.main)
    for x, y, r in ((-0.45, -0.2, 0.15), (0.05, -0.5, 0.17), (0.48, -0.14, 0.13)):
        p.oval(x, y, r, r * 0.9, p.white)


def clock(p: Pen) -> None:
    for s in (1, -1):
        p.line([(s * 0.4, 0.6), (s * 0.55, 0.92)], 0.1, p.deep)
        p.oval(s * 0.48, -0.72, 0.24, 0.2, p.second)
    p.oval(0, 0.05, 0.74, 0.74, p.main)
    p.oval(0, 0.05, 0.56, 0.56, p.white)
    for a in np.radians(np.arange(0, 360, 30)):
        p.dot(0.46 * np.cos(a), 0.05 + 0.46 * np.sin(a), 0.035)
    p.line([(0, 0.05), (0, -0.32)], 0.06)
    p.line([(0, 0.05), (0.26, 0.16)], 0.07)


# ---------------------------------------------------------------- scenes: pale, behind the thing, drawn without ink lines
# In a scene `main` is the upper ground, `second` the lower; `light`, `deep` and `ink` are shades of them.


def plain(p: Pen) -> None:
    """Nothing but the two grounds."""


def table(p: Pen) -> None:
    p.box(-1, 0.3, 1, 0.5, p.deep)
    p.box(-0.85, 0.5, -0.7, 1, p.light)
    p.box(0.7, 0.5, 0.85, 1, p.light)


def wall(p: Pen) -> None:
    for row in range(8):
        y = -1 + 0.25 * row
        p.line([(-1, y), (1, y)], 0.025, p.deep)
        for x in np.arange(-1 + 0.25 * (row % 2), 1.1, 0.5):
            p.line([(x, y), (x, y + 0.25)], 0.025, p.deep)


def shelf(p: Pen) -> None:
    for y in (-0.5, 0.62):
        p.box(-1, y, 1, y + 0.09, p.deep)
    for i in range(7):
        p.box(-0.95 + 0.2 * i, -0.95 + 0.05 * (i % 3), -0.8 + 0.2 * i, -0.5, p.light)


def carpet(p: Pen) -> None:
    p.oval(0, 0.55, 0.95, 0.4, p.deep)
    p.oval(0, 0.55, 0.75, 0.28, p.light)


def window(p: Pen) -> None:
    p.box(-0.7, -0.9, 0.7, 0.55, p.light)
    p.box(-0.04, -0.9, 0.04, 0.55, p.deep)
    p.box(-0.7, -0.22, 0.7, -0.14, p.deep)
    p.box(-0.85, 0.55, 0.85, 0.68, p.deep)


def cave(p: Pen) -> None:
    p.shape([(-1, -1), (1, -1), (1, 1), (0.82, 1), (0.86, 0.0), (0.6, -0.6), (0.42, -0.5), (0.3, -0.75), (0.1, -0.45), (-0.1, -0.8), (-0.3, -0.52), (-0.45, -0.75), (-0.66, -0.5), (-0.86, 0.1), (-0.82, 1), (-1, 1)], p.deep)
    p.shape([(-0.82, 1), (-0.6, 0.7), (-0.45, 0.9), (0.4, 0.92), (0.6, 0.72), (0.82, 1)], p.deep)


def stadium(p: Pen) -> None:
    for i, y in enumerate((-0.5, -0.3, -0.1)):
        p.box(-1, y, 1, y + 0.12, p.light if i % 2 else p.deep)
    for s in (1, -1):
        p.box(s * 0.8 - 0.03, -0.9, s * 0.8 + 0.03, 0.1, p.ink)
        p.box(s * 0.8 - 0.15, -0.98, s * 0.8 + 0.15, -0.8, p.light)
    p.oval(0, 0.65, 0.5, 0.2, p.light)
    p.oval(0, 0.65, 0.43, 0.15, p.second)


def lake(p: Pen) -> None:
    p.shape([(-1, 0.1), (-0.6, -0.3), (-0.2, 0.0), (0.3, -0.4), (1, 0.1)], p.light)
    for i, y in enumerate((0.3, 0.5, 0.7, 0.9)):
        for x in np.arange(-0.9 + 0.2 * (i % 2), 0.9, 0.45):
            p.line([(x, y), (x + 0.1, y - 0.05), (x + 0.2, y)], 0.03, p.deep)
    for x in (-0.9, -0.8, 0.88):
        p.line([(x, 0.5), (x + 0.02, -0.2)], 0.03, p.ink)
        p.oval(x + 0.02, -0.2, 0.04, 0.13, p.ink)


def building_site(p: Pen) -> None:
    for x in (-0.9, -0.45, 0.0, 0.45, 0.9):
        p.box(x - 0.025, -1, x + 0.025, 0.55, p.deep)
    for y in (-0.75, -0.3, 0.15):
        p.box(-1, y, 1, y + 0.05, p.deep)
    p.line([(-0.9, 0.15), (-0.45, -0.3)], 0.03, p.deep)
    p.line([(0.45, -0.3), (0.9, -0.75)], 0.03, p.deep)
    p.shape([(0.3, 1), (0.65, 0.6), (1, 0.85), (1, 1)], p.light)


def ice(p: Pen) -> None:
    p.shape([(-1, 0.1), (-0.8, -0.45), (-0.55, -0.2), (-0.35, -0.6), (-0.1, 0.1)], p.light)
    p.shape([(0.3, 0.1), (0.55, -0.35), (0.75, -0.15), (1, -0.5), (1, 0.1)], p.light)
    p.shape([(-0.95, 0.75), (-0.5, 0.45), (0.1, 0.5), (0.2, 0.75), (-0.5, 0.9)], p.light)
    p.shape([(0.35, 0.7), (0.7, 0.45), (1, 0.6), (0.9, 0.85)], p.light)


def office(p: Pen) -> None:
    p.box(-0.95, -0.9, -0.1, 0.0, p.light)
    for y in np.arange(-0.85, 0.0, 0.14):
        p.line([(-0.95, y), (-0.1, y)], 0.03, p.deep)
    p.box(0.3, -0.5, 0.9, 0.0, p.ink)
    p.box(0.36, -0.44, 0.84, -0.06, p.light)
    p.box(0.55, 0.0, 0.65, 0.2, p.ink)
    p.box(-1, 0.2, 1, 0.34, p.deep)


def forest(p: Pen) -> None:
    for x, h in ((-0.85, 0.0), (-0.42, -0.25), (0.05, -0.05), (0.48, -0.3), (0.9, 0.05)):
        p.box(x - 0.04, 0.2, x + 0.04, 0.5, p.ink)
        for i in range(3):
            y = h - 0.5 + 0.25 * i
            p.shape([(x, y), (x + 0.14 + 0.05 * i, y + 0.35), (x - 0.14 - 0.05 * i, y + 0.35)], p.deep)


def party(p: Pen) -> None:
    p.line([(-1, -0.9), (-0.4, -0.6), (0.1, -0.9), (0.6, -0.6), (1, -0.9)], 0.03, p.ink, smooth=True)
    for i, (x, y) in enumerate(((-0.8, -0.8), (-0.55, -0.66), (-0.25, -0.66), (0.3, -0.8), (0.55, -0.62), (0.8, -0.75))):
        p.shape([(x - 0.1, y), (x + 0.1, y), (x, y + 0.22)], p.deep if i % 2 else p.light)
    for x, y in ((-0.8, -0.1), (0.85, 0.0), (0.6, -0.2)):
        p.line([(x, y), (x - 0.05, y + 0.8)], 0.025, p.deep)
        p.oval(x, y, 0.14, 0.19, p.deep)


def fireplace(p: Pen) -> None:
    p.box(-0.8, -0.75, 0.8, -0.58, p.ink)
    p.box(-0.7, -0.58, -0.45, 0.8, p.deep)
    p.box(0.45, -0.58, 0.7, 0.8, p.deep)
    p.box(-0.45, -0.58, 0.45, -0.35, p.deep)
    p.shape([(-0.35, 0.8), (-0.3, 0.3), (-0.12, 0.5), (0.0, 0.0), (0.15, 0.5), (0.3, 0.25), (0.36, 0.8)], p.light)
    p.box(-0.9, 0.8, 0.9, 0.9, p.ink)


def beach(p: Pen) -> None:
    p.oval(0.65, -0.65, 0.22, 0.22, p.light)
    for a in np.radians(np.arange(0, 360, 45)):
        p.line([(0.65 + 0.27 * np.cos(a), -0.65 + 0.27 * np.sin(a)), (0.65 + 0.36 * np.cos(a), -0.65 + 0.36 * np.sin(a))], 0.035, p.light)
    p.box(-1, -0.05, 1, 0.3, p.deep)
    p.shape([(-1, 0.3), (-0.5, 0.2), (0.0, 0.34), (0.5, 0.22), (1, 0.34), (1, 1), (-1, 1)], p.second)
    for x, y in ((-0.7, 0.7), (-0.3, 0.9), (0.3, 0.75), (0.8, 0.6)):
        p.dot(x, y, 0.03, p.deep)


def hospital(p: Pen) -> None:
    p.box(-0.8, -0.85, -0.6, -0.25, p.ink)
    p.box(-1.0, -0.65, -0.4, -0.45, p.ink)
    p.line([(0.75, -0.8), (0.75, 0.6)], 0.04, p.deep)
    p.box(0.62, -0.8, 0.88, -0.4, p.light)
    p.box(-0.9, 0.35, 0.6, 0.6, p.light)
    p.box(-0.9, 0.6, 0.6, 0.68, p.deep)
    p.box(-0.95, 0.1, -0.88, 0.95, p.deep)
    p.box(0.6, 0.3, 0.67, 0.95, p.deep)


def school(p: Pen) -> None:
    p.box(-0.9, -0.85, 0.9, 0.15, p.light)
    p.box(-0.82, -0.77, 0.82, 0.07, p.ink)
    for y in (-0.6, -0.4, -0.2):
        p.line([(-0.7, y), (-0.55, y + 0.08), (-0.4, y - 0.04), (-0.2, y + 0.05)], 0.03, p.light)
        p.line([(0.3, y), (0.7, y)], 0.03, p.light)
    for x in (-0.9, -0.2, 0.5):
        p.box(x, 0.6, x + 0.45, 0.68, p.deep)


def castle(p: Pen) -> None:
    for x in (-0.95, 0.55):
        p.box(x, -0.7, x + 0.4, 0.4, p.deep)
        for i in range(3):
            p.box(x + 0.16 * i, -0.85, x + 0.08 + 0.16 * i, -0.7, p.deep)
        p.box(x + 0.15, -0.45, x + 0.25, -0.2, p.light)
    p.box(-0.55, -0.25, 0.55, 0.4, p.light)
    for i in range(5):
        p.box(-0.5 + 0.22 * i, -0.37, -0.38 + 0.22 * i, -0.25, p.light)
    p.shape([(-0.2, 0.4), *arc(0, 0.15, 0.2, 0.25, 180, 360, 9), (0.2, 0.4)], p.ink)


def airport(p: Pen) -> None:
    p.shape([(-0.75, 0.3), (-0.68, -0.45), (-0.52, -0.45), (-0.45, 0.3)], p.light)
    p.shape([(-0.85, -0.75), (-0.35, -0.75), (-0.42, -0.45), (-0.78, -0.45)], p.deep)
    p.box(-0.1, -0.05, 1, 0.3, p.light)
    for x in np.arange(0.0, 0.95, 0.24):
        p.box(x, 0.02, x + 0.14, 0.16, p.deep)
    p.box(-1, 0.55, 1, 0.95, p.deep)
    for x in np.arange(-0.9, 0.9, 0.4):
        p.box(x, 0.72, x + 0.22, 0.78, p.light)


def workshop(p: Pen) -> None:
    for x in np.arange(-0.9, 1, 0.2):
        for y in np.arange(-0.9, 0.1, 0.2):
            p.dot(x, y, 0.025, p.deep)
    p.line([(-0.75, -0.75), (-0.75, -0.1)], 0.07, p.deep)
    p.box(-0.95, -0.85, -0.55, -0.65, p.ink)
    p.shape([(0.45, -0.8), (0.95, -0.8), (0.95, -0.6), (0.6, -0.3)], p.light)
    p.line([(0.3, -0.85), (0.48, -0.65)], 0.1, p.deep)
    p.box(-1, 0.45, 1, 0.6, p.deep)


def stage(p: Pen) -> None:
    for s in (1, -1):
        for i in range(4):
            x = s * (1 - 0.1 * i)
            p.shape([(x, -1), (x - s * 0.1, -1), (x - s * (0.1 + 0.02 * i), 0.6), (x, 0.6)], p.deep if i % 2 else p.ink)
    for x in np.arange(-0.75, 0.9, 0.5):
        p.shape([(x - 0.25, -1), (x + 0.25, -1), (x + 0.18, -0.8), (x, -0.74), (x - 0.18, -0.8)], p.deep)
    p.box(-1, 0.6, 1, 0.68, p.deep)


def storm(p: Pen) -> None:
    for x, y in ((-0.6, -0.7), (0.15, -0.8), (0.7, -0.6)):
        for dx, r in ((-0.22, 0.16), (0.0, 0.22), (0.22, 0.16)):
            p.oval(x + dx, y, r, r * 0.85, p.deep)
    for i, x in enumerate(np.arange(-0.9, 1, 0.24)):
        for y in np.arange(-0.3 + 0.15 * (i % 2), 0.8, 0.4):
            p.line([(x, y), (x - 0.06, y + 0.16)], 0.025, p.deep)


def desert(p: Pen) -> None:
    p.shape([(-0.95, 0.2), (-0.45, -0.5), (0.05, 0.2)], p.light)
    p.shape([(-0.45, -0.5), (0.05, 0.2), (-0.25, 0.2)], p.deep)
    p.shape([(0.2, 0.2), (0.6, -0.25), (0.98, 0.2)], p.light)
    p.shape([(0.6, -0.25), (0.98, 0.2), (0.75, 0.2)], p.deep)
    for y in (0.4, 0.65, 0.88):
        p.line([(-1, y), (-0.4, y - 0.08), (0.2, y + 0.04), (1, y - 0.06)], 0.035, p.deep, smooth=True)


def living_room(p: Pen) -> None:
    p.box(-0.85, -0.85, -0.25, -0.4, p.deep)
    p.box(-0.77, -0.77, -0.33, -0.48, p.light)
    p.box(-0.8, -0.1, 0.8, 0.35, p.deep)
    p.box(-0.95, 0.1, -0.68, 0.6, p.ink)
    p.box(0.68, 0.1, 0.95, 0.6, p.ink)
    p.box(-0.68, 0.3, 0.68, 0.6, p.light)
    p.shape([(0.5, -0.9), (0.75, -0.9), (0.88, -0.55), (0.37, -0.55)], p.light)


def harbour(p: Pen) -> None:
    p.box(-0.95, -0.85, -0.7, 0.1, p.light)
    p.box(-0.95, -0.55, -0.7, -0.3, p.deep)
    p.box(-1.0, -0.95, -0.65, -0.85, p.deep)
    p.shape([(0.1, 0.0), (0.98, 0.0), (0.85, 0.25), (0.25, 0.25)], p.deep)
    p.box(0.45, -0.3, 0.75, 0.0, p.light)
    p.line([(0.6, -0.3), (0.6, -0.7)], 0.035, p.deep)
    for i, y in enumerate((0.4, 0.6)):
        for x in np.arange(-0.95 + 0.2 * i, 0.9, 0.4):
            p.line([(x, y), (x + 0.1, y - 0.06), (x + 0.2, y)], 0.03, p.light)
    for x in (-0.6, 0.0, 0.6):
        p.box(x - 0.06, 0.7, x + 0.06, 1, p.deep)


# ---------------------------------------------------------------- pictures

THINGS: dict[str, Callable[[Pen], None]] = {
    f.__name__: f
    for f in (
        bat_animal, bat_club, crane_bird, crane_machine, seal_animal, seal_stamp, bow_weapon, bow_ribbon,
        pipe_smoking, pipe_tube, palm_tree, palm_hand, letter_mail, letter_sign, key_lock, key_button,
        plane_air, plane_tool, fan_folding, fan_electric, nut_food, nut_metal, bolt_lightning, bolt_screw,
        tank_army, tank_fish, bass_fish, bass_music,
        cat, rabbit, duck, snail, turtle, butterfly, cup, chair, lamp, book, car, boat, umbrella, apple, mushroom, clock,
    )
}  # fmt: skip
SCENES: dict[str, Callable[[Pen], None]] = {
    f.__name__: f
    for f in (
        plain, table, wall, shelf, carpet, window,
        cave, stadium, lake, building_site, ice, office, forest, party, fireplace, beach, hospital, school, castle,
        airport, workshop, stage, storm, desert, living_room, harbour,
    )
}  # fmt: skip
INK: Colour = (38, 32, 44)


def _pale(rng: np.random.Generator) -> Colour:
    red, green, blue = colorsys.hsv_to_rgb(rng.uniform(), rng.uniform(0.06, 0.24), rng.uniform(0.86, 0.99))
    return round(255 * red), round(255 * green), round(255 * blue)


def _scene_colours(rng: np.random.Generator) -> list[Colour]:
    upper, lower = _pale(rng), _pale(rng)
    depth = rng.uniform(0.08, 0.17)
    dark: Colour = (70, 70, 90)
    return [upper, blend(upper, (255, 255, 255), 0.5), blend(upper, dark, depth), lower, blend(lower, dark, depth + 0.1)]


def _thing_colours(name: str, rng: np.random.Generator) -> list[Colour]:
    jitter = rng.integers(-16, 17, 3)
    main: Colour = tuple(int(np.clip(c + j, 0, 255)) for c, j in zip(COLOURS[name], jitter, strict=True))  # type: ignore
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
    SHAPE = Pen(canvas, _thing_colours(look.colour, rng), (centre[0], centre[1]), reach, tilt, mirrored)
    THINGS[thing](SHAPE)
    small = np.asarray(canvas.reduce(OVERSAMPLING), dtype=np.float32)  # (IMAGE_SIZE, IMAGE_SIZE, 3)
    light = rng.uniform(0.82, 1.05) * rng.uniform(0.92, 1.08, 3)
    grain = rng.normal(0, rng.uniform(1, 6), (IMAGE_SIZE, IMAGE_SIZE, 1))
    return Image.fromarray(np.clip(small * light + grain, 0, 255).round().astype(np.uint8))
