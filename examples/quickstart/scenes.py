"""The scenes of the quickstart's world: pale, behind the thing, drawn without ink lines.

x and y are in -1..1, y downwards, for the whole picture. The pen's `main` is the colour of the upper ground, `second`
of the lower, which are there already; `light`, `deep` and `ink` are shades of them.
"""

from collections.abc import Callable

import numpy as np
from pen import Pen, arc


def plain(p: Pen) -> None:
    """Nothing but the two grounds."""


def table(p: Pen) -> None:
    """A table's edge."""
    p.box(-1, 0.3, 1, 0.5, p.deep)
    p.box(-0.85, 0.5, -0.7, 1, p.light)
    p.box(0.7, 0.5, 0.85, 1, p.light)


def wall(p: Pen) -> None:
    """Bricks."""
    for row in range(8):
        y = -1 + 0.25 * row
        p.line([(-1, y), (1, y)], 0.025, p.deep)
        for x in np.arange(-1 + 0.25 * (row % 2), 1.1, 0.5):
            p.line([(x, y), (x, y + 0.25)], 0.025, p.deep)


def shelf(p: Pen) -> None:
    """Two boards and books."""
    for y in (-0.5, 0.62):
        p.box(-1, y, 1, y + 0.09, p.deep)
    for i in range(7):
        p.box(-0.95 + 0.2 * i, -0.95 + 0.05 * (i % 3), -0.8 + 0.2 * i, -0.5, p.light)


def carpet(p: Pen) -> None:
    """A round carpet."""
    p.oval(0, 0.55, 0.95, 0.4, p.deep)
    p.oval(0, 0.55, 0.75, 0.28, p.light)


def window(p: Pen) -> None:
    """A window with its sill."""
    p.box(-0.7, -0.9, 0.7, 0.55, p.light)
    p.box(-0.04, -0.9, 0.04, 0.55, p.deep)
    p.box(-0.7, -0.22, 0.7, -0.14, p.deep)
    p.box(-0.85, 0.55, 0.85, 0.68, p.deep)


def cave(p: Pen) -> None:
    """Rocks and stalactites."""
    p.shape(
        [
            (-1, -1),
            (1, -1),
            (1, 1),
            (0.82, 1),
            (0.86, 0.0),
            (0.6, -0.6),
            (0.42, -0.5),
            (0.3, -0.75),
            (0.1, -0.45),
            (-0.1, -0.8),
            (-0.3, -0.52),
            (-0.45, -0.75),
            (-0.66, -0.5),
            (-0.86, 0.1),
            (-0.82, 1),
            (-1, 1),
        ],
        p.deep,
    )
    p.shape([(-0.82, 1), (-0.6, 0.7), (-0.45, 0.9), (0.4, 0.92), (0.6, 0.72), (0.82, 1)], p.deep)


def stadium(p: Pen) -> None:
    """Ranks and floodlights."""
    for i, y in enumerate((-0.5, -0.3, -0.1)):
        p.box(-1, y, 1, y + 0.12, p.light if i % 2 else p.deep)
    for s in (1, -1):
        p.box(s * 0.8 - 0.03, -0.9, s * 0.8 + 0.03, 0.1, p.ink)
        p.box(s * 0.8 - 0.15, -0.98, s * 0.8 + 0.15, -0.8, p.light)
    p.oval(0, 0.65, 0.5, 0.2, p.light)
    p.oval(0, 0.65, 0.43, 0.15, p.second)


def lake(p: Pen) -> None:
    """Hills, waves and reed."""
    p.shape([(-1, 0.1), (-0.6, -0.3), (-0.2, 0.0), (0.3, -0.4), (1, 0.1)], p.light)
    for i, y in enumerate((0.3, 0.5, 0.7, 0.9)):
        for x in np.arange(-0.9 + 0.2 * (i % 2), 0.9, 0.45):
            p.line([(x, y), (x + 0.1, y - 0.05), (x + 0.2, y)], 0.03, p.deep)
    for x in (-0.9, -0.8, 0.88):
        p.line([(x, 0.5), (x + 0.02, -0.2)], 0.03, p.ink)
        p.oval(x + 0.02, -0.2, 0.04, 0.13, p.ink)


def building_site(p: Pen) -> None:
    """Scaffolding and sand."""
    for x in (-0.9, -0.45, 0.0, 0.45, 0.9):
        p.box(x - 0.025, -1, x + 0.025, 0.55, p.deep)
    for y in (-0.75, -0.3, 0.15):
        p.box(-1, y, 1, y + 0.05, p.deep)
    p.line([(-0.9, 0.15), (-0.45, -0.3)], 0.03, p.deep)
    p.line([(0.45, -0.3), (0.9, -0.75)], 0.03, p.deep)
    p.shape([(0.3, 1), (0.65, 0.6), (1, 0.85), (1, 1)], p.light)


def ice(p: Pen) -> None:
    """Floes."""
    p.shape([(-1, 0.1), (-0.8, -0.45), (-0.55, -0.2), (-0.35, -0.6), (-0.1, 0.1)], p.light)
    p.shape([(0.3, 0.1), (0.55, -0.35), (0.75, -0.15), (1, -0.5), (1, 0.1)], p.light)
    p.shape([(-0.95, 0.75), (-0.5, 0.45), (0.1, 0.5), (0.2, 0.75), (-0.5, 0.9)], p.light)
    p.shape([(0.35, 0.7), (0.7, 0.45), (1, 0.6), (0.9, 0.85)], p.light)


def office(p: Pen) -> None:
    """Blinds, a screen and a desk."""
    p.box(-0.95, -0.9, -0.1, 0.0, p.light)
    for y in np.arange(-0.85, 0.0, 0.14):
        p.line([(-0.95, y), (-0.1, y)], 0.03, p.deep)
    p.box(0.3, -0.5, 0.9, 0.0, p.ink)
    p.box(0.36, -0.44, 0.84, -0.06, p.light)
    p.box(0.55, 0.0, 0.65, 0.2, p.ink)
    p.box(-1, 0.2, 1, 0.34, p.deep)


def forest(p: Pen) -> None:
    """Fir trees."""
    for x, h in ((-0.85, 0.0), (-0.42, -0.25), (0.05, -0.05), (0.48, -0.3), (0.9, 0.05)):
        p.box(x - 0.04, 0.2, x + 0.04, 0.5, p.ink)
        for i in range(3):
            y = h - 0.5 + 0.25 * i
            p.shape([(x, y), (x + 0.14 + 0.05 * i, y + 0.35), (x - 0.14 - 0.05 * i, y + 0.35)], p.deep)


def party(p: Pen) -> None:
    """Bunting and balloons."""
    p.line([(-1, -0.9), (-0.4, -0.6), (0.1, -0.9), (0.6, -0.6), (1, -0.9)], 0.03, p.ink, smooth=True)
    for i, (x, y) in enumerate(
        ((-0.8, -0.8), (-0.55, -0.66), (-0.25, -0.66), (0.3, -0.8), (0.55, -0.62), (0.8, -0.75))
    ):
        p.shape([(x - 0.1, y), (x + 0.1, y), (x, y + 0.22)], p.deep if i % 2 else p.light)
    for x, y in ((-0.8, -0.1), (0.85, 0.0), (0.6, -0.2)):
        p.line([(x, y), (x - 0.05, y + 0.8)], 0.025, p.deep)
        p.oval(x, y, 0.14, 0.19, p.deep)


def fireplace(p: Pen) -> None:
    """Mantelpiece and fire."""
    p.box(-0.8, -0.75, 0.8, -0.58, p.ink)
    p.box(-0.7, -0.58, -0.45, 0.8, p.deep)
    p.box(0.45, -0.58, 0.7, 0.8, p.deep)
    p.box(-0.45, -0.58, 0.45, -0.35, p.deep)
    p.shape([(-0.35, 0.8), (-0.3, 0.3), (-0.12, 0.5), (0.0, 0.0), (0.15, 0.5), (0.3, 0.25), (0.36, 0.8)], p.light)
    p.box(-0.9, 0.8, 0.9, 0.9, p.ink)


def beach(p: Pen) -> None:
    """Sun, sea and sand."""
    p.oval(0.65, -0.65, 0.22, 0.22, p.light)
    for a in np.radians(np.arange(0, 360, 45)):
        p.line(
            [(0.65 + 0.27 * np.cos(a), -0.65 + 0.27 * np.sin(a)), (0.65 + 0.36 * np.cos(a), -0.65 + 0.36 * np.sin(a))],
            0.035,
            p.light,
        )
    p.box(-1, -0.05, 1, 0.3, p.deep)
    p.shape([(-1, 0.3), (-0.5, 0.2), (0.0, 0.34), (0.5, 0.22), (1, 0.34), (1, 1), (-1, 1)], p.second)
    for x, y in ((-0.7, 0.7), (-0.3, 0.9), (0.3, 0.75), (0.8, 0.6)):
        p.dot(x, y, 0.03, p.deep)


def hospital(p: Pen) -> None:
    """A cross, a bed and a drip."""
    p.box(-0.8, -0.85, -0.6, -0.25, p.ink)
    p.box(-1.0, -0.65, -0.4, -0.45, p.ink)
    p.line([(0.75, -0.8), (0.75, 0.6)], 0.04, p.deep)
    p.box(0.62, -0.8, 0.88, -0.4, p.light)
    p.box(-0.9, 0.35, 0.6, 0.6, p.light)
    p.box(-0.9, 0.6, 0.6, 0.68, p.deep)
    p.box(-0.95, 0.1, -0.88, 0.95, p.deep)
    p.box(0.6, 0.3, 0.67, 0.95, p.deep)


def school(p: Pen) -> None:
    """A blackboard and desks."""
    p.box(-0.9, -0.85, 0.9, 0.15, p.light)
    p.box(-0.82, -0.77, 0.82, 0.07, p.ink)
    for y in (-0.6, -0.4, -0.2):
        p.line([(-0.7, y), (-0.55, y + 0.08), (-0.4, y - 0.04), (-0.2, y + 0.05)], 0.03, p.light)
        p.line([(0.3, y), (0.7, y)], 0.03, p.light)
    for x in (-0.9, -0.2, 0.5):
        p.box(x, 0.6, x + 0.45, 0.68, p.deep)


def castle(p: Pen) -> None:
    """Two towers and a gate."""
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
    """A control tower and a runway."""
    p.shape([(-0.75, 0.3), (-0.68, -0.45), (-0.52, -0.45), (-0.45, 0.3)], p.light)
    p.shape([(-0.85, -0.75), (-0.35, -0.75), (-0.42, -0.45), (-0.78, -0.45)], p.deep)
    p.box(-0.1, -0.05, 1, 0.3, p.light)
    for x in np.arange(0.0, 0.95, 0.24):
        p.box(x, 0.02, x + 0.14, 0.16, p.deep)
    p.box(-1, 0.55, 1, 0.95, p.deep)
    for x in np.arange(-0.9, 0.9, 0.4):
        p.box(x, 0.72, x + 0.22, 0.78, p.light)


def workshop(p: Pen) -> None:
    """A hammer and a saw on a pegboard."""
    for x in np.arange(-0.9, 1, 0.2):
        for y in np.arange(-0.9, 0.1, 0.2):
            p.dot(x, y, 0.025, p.deep)
    p.line([(-0.75, -0.75), (-0.75, -0.1)], 0.07, p.deep)
    p.box(-0.95, -0.85, -0.55, -0.65, p.ink)
    p.shape([(0.45, -0.8), (0.95, -0.8), (0.95, -0.6), (0.6, -0.3)], p.light)
    p.line([(0.3, -0.85), (0.48, -0.65)], 0.1, p.deep)
    p.box(-1, 0.45, 1, 0.6, p.deep)


def stage(p: Pen) -> None:
    """Curtains."""
    for s in (1, -1):
        for i in range(4):
            x = s * (1 - 0.1 * i)
            p.shape([(x, -1), (x - s * 0.1, -1), (x - s * (0.1 + 0.02 * i), 0.6), (x, 0.6)], p.deep if i % 2 else p.ink)
    for x in np.arange(-0.75, 0.9, 0.5):
        p.shape([(x - 0.25, -1), (x + 0.25, -1), (x + 0.18, -0.8), (x, -0.74), (x - 0.18, -0.8)], p.deep)
    p.box(-1, 0.6, 1, 0.68, p.deep)


def storm(p: Pen) -> None:
    """Clouds and rain."""
    for x, y in ((-0.6, -0.7), (0.15, -0.8), (0.7, -0.6)):
        for dx, r in ((-0.22, 0.16), (0.0, 0.22), (0.22, 0.16)):
            p.oval(x + dx, y, r, r * 0.85, p.deep)
    for i, x in enumerate(np.arange(-0.9, 1, 0.24)):
        for y in np.arange(-0.3 + 0.15 * (i % 2), 0.8, 0.4):
            p.line([(x, y), (x - 0.06, y + 0.16)], 0.025, p.deep)


def desert(p: Pen) -> None:
    """Pyramids and dunes."""
    p.shape([(-0.95, 0.2), (-0.45, -0.5), (0.05, 0.2)], p.light)
    p.shape([(-0.45, -0.5), (0.05, 0.2), (-0.25, 0.2)], p.deep)
    p.shape([(0.2, 0.2), (0.6, -0.25), (0.98, 0.2)], p.light)
    p.shape([(0.6, -0.25), (0.98, 0.2), (0.75, 0.2)], p.deep)
    for y in (0.4, 0.65, 0.88):
        p.line([(-1, y), (-0.4, y - 0.08), (0.2, y + 0.04), (1, y - 0.06)], 0.035, p.deep, smooth=True)


def living_room(p: Pen) -> None:
    """A sofa, a picture and a lamp."""
    p.box(-0.85, -0.85, -0.25, -0.4, p.deep)
    p.box(-0.77, -0.77, -0.33, -0.48, p.light)
    p.box(-0.8, -0.1, 0.8, 0.35, p.deep)
    p.box(-0.95, 0.1, -0.68, 0.6, p.ink)
    p.box(0.68, 0.1, 0.95, 0.6, p.ink)
    p.box(-0.68, 0.3, 0.68, 0.6, p.light)
    p.shape([(0.5, -0.9), (0.75, -0.9), (0.88, -0.55), (0.37, -0.55)], p.light)


def harbour(p: Pen) -> None:
    """A lighthouse, a ship and a pier."""
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


SCENES: dict[str, Callable[[Pen], None]] = {
    f.__name__: f
    for f in (
        plain, table, wall, shelf, carpet, window, cave, stadium, lake, building_site, ice, office, forest, party,
        fireplace, beach, hospital, school, castle, airport, workshop, stage, storm, desert, living_room, harbour,
    )
}  # fmt: skip
