"""A pen that draws cartoon shapes in a square of its own, somewhere in a picture."""

import numpy as np
from PIL import Image, ImageDraw

Colour = tuple[int, int, int]
Points = list[tuple[float, float]]


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


def star(x: float, y: float, outer: float, inner: float, tips: int) -> Points:
    """The corners of a star, the first tip up."""
    turns = np.linspace(0, 2 * np.pi, 2 * tips, endpoint=False)
    radii = [outer, inner] * tips
    return [(x + r * np.sin(a), y - r * np.cos(a)) for r, a in zip(radii, turns, strict=True)]


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
