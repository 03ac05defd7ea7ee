"""The things of the quickstart's world: a drawing function each, in a square with x and y in -1..1, y downwards."""

from collections.abc import Callable

import numpy as np
from pen import Pen, arc, star


def bat_animal(p: Pen) -> None:
    """The animal, wings spread."""
    for s in (1, -1):
        wing = [
            (0.1, -0.15),
            (0.4, -0.6),
            (0.98, -0.5),
            (0.9, 0.3),
            (0.7, 0.05),
            (0.52, 0.42),
            (0.36, 0.12),
            (0.1, 0.45),
        ]
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
    """The club, with its ball."""
    blade = [
        (-0.78, 0.72),
        (-0.7, 0.8),
        (-0.1, 0.3),
        (0.62, -0.42),
        (0.78, -0.72),
        (0.7, -0.84),
        (0.52, -0.78),
        (0.2, -0.5),
        (-0.3, 0.1),
    ]
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
    """The wading bird."""
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
    """The machine with mast, jib and hook."""
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
    """The animal, head up."""
    p.shape([(-0.62, 0.4), (-0.98, 0.12), (-0.9, 0.42), (-0.99, 0.7), (-0.6, 0.58)], p.deep)
    body = [
        (-0.75, 0.5),
        (-0.3, 0.22),
        (0.1, -0.1),
        (0.25, -0.55),
        (0.52, -0.72),
        (0.8, -0.52),
        (0.72, -0.2),
        (0.62, 0.3),
        (0.5, 0.62),
        (-0.1, 0.66),
    ]
    p.shape(body, p.main, smooth=True)
    p.shape([(0.3, -0.1), (0.55, 0.1), (0.48, 0.45), (0.1, 0.58), (0.2, 0.2)], p.light, smooth=True)
    p.shape([(0.3, 0.35), (0.05, 0.75), (0.3, 0.85), (0.52, 0.5)], p.deep)
    p.oval(0.72, -0.43, 0.16, 0.11, p.light)
    p.dot(0.83, -0.47, 0.055)
    p.dot(0.52, -0.53, 0.06)
    for y in (-0.4, -0.3):
        p.line([(0.72, y), (0.99, y + 0.06)], 0.025)


def seal_stamp(p: Pen) -> None:
    """The seal of a document, with its ribbons."""
    p.shape([(-0.4, 0.3), (-0.55, 0.97), (-0.3, 0.82), (-0.1, 0.97), (-0.02, 0.3)], p.second)
    p.shape([(0.4, 0.3), (0.55, 0.97), (0.3, 0.82), (0.1, 0.97), (0.02, 0.3)], p.second)
    p.shape(star(0, -0.15, 0.79, 0.65, 12), p.main, smooth=True)
    p.oval(0, -0.15, 0.53, 0.53, p.light)
    p.shape(star(0, -0.15, 0.4, 0.18, 5), p.deep)


def bow_weapon(p: Pen) -> None:
    """Bow and arrow."""
    p.line([(-0.25, -0.9), (-0.45, 0.0), (-0.25, 0.9)], 0.025)
    p.line([(-0.25, -0.9), (0.2, -0.68), (0.42, 0.0), (0.2, 0.68), (-0.25, 0.9)], 0.11, p.main, smooth=True)
    p.line([(0.42, -0.13), (0.42, 0.13)], 0.16, p.second)
    p.line([(-0.62, 0.0), (0.85, 0.0)], 0.06)
    p.shape([(0.74, -0.13), (0.99, 0.0), (0.74, 0.13)], p.deep)
    for y in (-0.15, 0.15):
        p.shape([(-0.5, 0.0), (-0.72, 0.0), (-0.92, y), (-0.68, y)], p.second)


def bow_ribbon(p: Pen) -> None:
    """The tied ribbon."""
    for s in (1, -1):
        p.shape([(0, 0.0), (s * 0.65, 0.78), (s * 0.4, 0.72), (s * 0.28, 0.92), (s * -0.08, 0.15)], p.deep)
    for s in (1, -1):
        p.shape([(0, -0.1), (s * 0.5, -0.62), (s * 0.92, -0.55), (s * 0.92, 0.25), (s * 0.5, 0.3)], p.main, smooth=True)
        p.shape([(s * 0.2, -0.12), (s * 0.6, -0.38), (s * 0.74, -0.15), (s * 0.58, 0.08)], p.deep, smooth=True)
    p.oval(0, -0.1, 0.19, 0.22, p.light)


def pipe_smoking(p: Pen) -> None:
    """The smoking pipe."""
    p.line([(-0.28, 0.45), (0.25, 0.34), (0.92, -0.1)], 0.1, p.deep, smooth=True)
    p.line([(0.78, 0.0), (0.94, -0.1)], 0.13, p.second)
    p.shape([(-0.78, -0.18), (-0.72, 0.5), (-0.5, 0.72), (-0.22, 0.62), (-0.12, 0.3), (-0.16, -0.18)], p.main)
    p.oval(-0.47, -0.2, 0.32, 0.12, p.deep)
    p.line([(-0.68, 0.02), (-0.64, 0.42)], 0.06, p.light)
    p.line([(-0.47, -0.32), (-0.62, -0.52), (-0.35, -0.7), (-0.5, -0.95)], 0.05, p.white, smooth=True)


def pipe_tube(p: Pen) -> None:
    """The tube, with a bend and two flanges."""
    p.shape(
        [(-0.9, -0.62), (0.2, -0.62), (0.5, -0.5), (0.62, -0.2), (0.62, 0.88), (0.1, 0.88), (0.1, -0.1), (-0.9, -0.1)],
        p.main,
    )
    p.line([(-0.6, -0.48), (0.15, -0.48), (0.38, -0.38), (0.48, -0.15), (0.48, 0.6)], 0.06, p.light)
    p.box(-0.97, -0.74, -0.72, 0.02, p.deep)
    p.box(-0.02, 0.66, 0.74, 0.92, p.deep)
    for y in (-0.62, -0.36, -0.1):
        p.dot(-0.845, y, 0.05)
    for x in (0.1, 0.36, 0.62):
        p.dot(x, 0.79, 0.05)


def palm_tree(p: Pen) -> None:
    """The tree."""
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
    """The open hand."""
    fingers = [
        ((-0.34, 0.0), (-0.5, -0.55)),
        ((-0.11, -0.1), (-0.16, -0.8)),
        ((0.13, -0.1), (0.18, -0.76)),
        ((0.34, 0.0), (0.5, -0.5)),
    ]
    for foot, tip in fingers:
        p.line([foot, tip], 0.2, p.main)
    p.line([(-0.3, 0.5), (-0.6, 0.25), (-0.8, 0.0)], 0.2, p.main, smooth=True)
    p.shape(
        [
            (-0.46, 0.0),
            (0.46, 0.0),
            (0.46, 0.5),
            (0.28, 0.78),
            (0.26, 0.96),
            (-0.24, 0.96),
            (-0.26, 0.78),
            (-0.46, 0.5),
        ],
        p.main,
    )
    for foot, tip in fingers:  # open the ink line between hand and finger
        edge, p.edge = p.edge, 0
        p.line([(foot[0], foot[1] + 0.12), tip], 0.2, p.main)
        p.edge = edge
    p.line([(-0.32, 0.25), (0.0, 0.14), (0.34, 0.22)], 0.04, smooth=True)
    p.line([(-0.2, 0.42), (0.05, 0.34), (0.34, 0.42)], 0.04, smooth=True)
    p.line([(-0.24, 0.28), (-0.02, 0.5), (-0.08, 0.76)], 0.04, smooth=True)


def spade_tool(p: Pen) -> None:
    """The tool."""
    p.shape([(-0.42, 0.1), (0.42, 0.1), (0.38, 0.6), (0.2, 0.85), (0.0, 0.97), (-0.2, 0.85), (-0.38, 0.6)], p.main)
    p.line([(0.0, 0.2), (0.0, 0.7)], 0.06, p.light)
    p.line([(0.0, 0.05), (0.0, -0.6)], 0.12, p.second)
    p.shape([(-0.3, -0.97), (0.3, -0.97), (0.14, -0.55), (-0.14, -0.55)], p.deep)
    p.shape([(-0.14, -0.86), (0.14, -0.86), (0.07, -0.66), (-0.07, -0.66)], p.white)


def spade_card(p: Pen) -> None:
    """The suit, on a card."""
    p.shape([(-0.66, -0.95), (0.66, -0.95), (0.66, 0.95), (-0.66, 0.95)], p.white)
    for x, y, size in ((0.0, 0.0, 1.0), (-0.48, -0.74, 0.26), (0.48, 0.74, 0.26)):
        edge, p.edge = p.edge, p.edge if size == 1 else 0
        p.shape([(x, y), (x - 0.17 * size, y + 0.6 * size), (x + 0.17 * size, y + 0.6 * size)], p.main)
        right = [(0.3, -0.25), (0.5, 0.08), (0.38, 0.32), (0.12, 0.28)]
        leaf = [(0.0, -0.62), *right, *[(-u, v) for u, v in reversed(right)]]
        p.shape([(x + u * size, y + v * size) for u, v in leaf], p.main)
        p.edge = edge


def key_lock(p: Pen) -> None:
    """The key of a lock."""
    p.box(-0.1, -0.11, 0.95, 0.11, p.main)
    p.shape(
        [(0.5, 0.11), (0.5, 0.42), (0.62, 0.42), (0.62, 0.28), (0.72, 0.28), (0.72, 0.48), (0.87, 0.48), (0.87, 0.11)],
        p.main,
    )
    p.oval(-0.5, 0, 0.46, 0.46, p.main)
    p.oval(-0.55, 0, 0.22, 0.22, p.white)
    p.box(-0.02, -0.2, 0.1, 0.2, p.deep)


def key_button(p: Pen) -> None:
    """The key of a keyboard."""
    p.shape([(-0.7, -0.82), (0.7, -0.82), (0.92, 0.78), (0.8, 0.9), (-0.8, 0.9), (-0.92, 0.78)], p.deep)
    p.shape([(-0.55, -0.72), (0.55, -0.72), (0.66, 0.4), (0.58, 0.5), (-0.58, 0.5), (-0.66, 0.4)], p.light)
    p.line([(0.3, -0.45), (0.3, 0.08), (-0.28, 0.08)], 0.09)
    p.line([(-0.1, -0.14), (-0.32, 0.08), (-0.1, 0.3)], 0.09)


def plane_air(p: Pen) -> None:
    """The aircraft."""
    p.shape([(-0.7, -0.1), (-0.95, -0.62), (-0.72, -0.62), (-0.4, -0.12)], p.second)
    p.shape([(0.12, 0.0), (-0.12, -0.52), (0.06, -0.52), (0.45, -0.08)], p.deep)
    p.shape(
        [(-0.9, -0.1), (-0.3, -0.2), (0.5, -0.2), (0.85, -0.08), (0.97, 0.06), (0.8, 0.18), (0.2, 0.22), (-0.5, 0.14)],
        p.main,
        smooth=True,
    )
    p.shape([(0.15, 0.1), (-0.38, 0.66), (-0.12, 0.66), (0.5, 0.1)], p.second)
    for x in (-0.3, -0.1, 0.1, 0.3, 0.5):
        p.dot(x, -0.06, 0.055, p.white)
    p.shape([(0.7, -0.13), (0.9, -0.02), (0.7, -0.02)], p.white)


def plane_tool(p: Pen) -> None:
    """The carpenter's tool."""
    p.shape([(-0.95, 0.1), (0.9, 0.1), (0.95, 0.55), (-0.95, 0.55)], p.main)
    p.line([(-0.8, 0.4), (0.75, 0.4)], 0.06, p.light)
    p.shape([(-0.7, 0.1), (-0.82, -0.4), (-0.62, -0.58), (-0.48, -0.4), (-0.5, -0.1), (-0.3, 0.1)], p.deep, smooth=True)
    p.line([(0.62, 0.08), (0.62, -0.1)], 0.12, p.deep)
    p.oval(0.62, -0.25, 0.2, 0.18, p.deep)
    p.shape([(-0.05, 0.1), (-0.32, -0.55), (-0.14, -0.6), (0.2, 0.1)], p.second)
    p.line([(0.15, 0.02), (0.3, -0.25), (0.12, -0.45), (0.0, -0.25), (0.14, -0.18)], 0.06, p.white, smooth=True)
    p.line([(-0.99, 0.66), (0.99, 0.66)], 0.05)


def fan_folding(p: Pen) -> None:
    """The folding fan."""
    p.shape([(0, 0.75), *arc(0, 0.75, 0.98, 1.35, -160, -20, 15)], p.main)
    p.shape([*arc(0, 0.75, 0.98, 1.35, -160, -20, 15), *arc(0, 0.75, 0.74, 1.0, -20, -160, 15)], p.second)
    for a in np.radians(np.linspace(-160, -20, 9)):
        p.line([(0, 0.75), (0.98 * np.cos(a), 0.75 + 1.35 * np.sin(a))], 0.04)
    p.shape([(0, 0.8), *arc(0, 0.75, 0.36, 0.5, -160, -20, 9)], p.deep)
    p.oval(0, 0.78, 0.09, 0.09, p.light)


def fan_electric(p: Pen) -> None:
    """The electric fan."""
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
    """The hazelnut."""
    p.shape([(0.25, -0.62), (0.45, -0.95), (0.95, -0.85), (0.7, -0.5)], p.second, smooth=True)
    p.shape([(-0.62, -0.1), (-0.4, 0.62), (0.0, 0.95), (0.4, 0.62), (0.62, -0.1)], p.main, smooth=True)
    cap = [
        (-0.78, -0.15),
        (-0.66, -0.58),
        (0, -0.78),
        (0.66, -0.58),
        (0.78, -0.15),
        (0.55, 0.08),
        (0.36, -0.08),
        (0.18, 0.1),
        (0, -0.06),
        (-0.18, 0.1),
        (-0.36, -0.08),
        (-0.55, 0.08),
    ]
    p.shape(cap, p.deep)
    p.line([(0, -0.75), (0.06, -0.97)], 0.09)
    p.line([(-0.3, 0.2), (-0.16, 0.55)], 0.07, p.light)


def nut_metal(p: Pen) -> None:
    """The nut that a bolt needs."""
    hexagon = [(0.82 * np.cos(a), 0.82 * np.sin(a)) for a in np.radians(np.arange(0, 360, 60))]
    p.shape([(x + 0.08, y + 0.16) for x, y in hexagon], p.deep)
    p.shape([(x - 0.06, y - 0.1) for x, y in hexagon], p.main)
    p.oval(-0.06, -0.1, 0.52, 0.52, p.light)
    p.oval(-0.06, -0.1, 0.38, 0.38, p.ink)
    p.line(arc(-0.06, -0.1, 0.28, 0.28, 30, 150, 9), 0.05, p.light)


def bolt_lightning(p: Pen) -> None:
    """The flash."""
    p.shape(
        [(0.15, -0.97), (-0.62, 0.12), (-0.08, 0.12), (-0.32, 0.97), (0.62, -0.22), (0.08, -0.22), (0.55, -0.97)],
        p.main,
    )
    p.line([(0.2, -0.82), (-0.36, 0.0)], 0.06, p.light)


def bolt_screw(p: Pen) -> None:
    """The screw."""
    p.box(-0.24, -0.5, 0.24, 0.92, p.light)
    for i in range(6):
        y = -0.1 + 0.17 * i
        p.line([(-0.27, y + 0.07), (0.27, y - 0.05)], 0.07)
    p.shape([(-0.7, -0.92), (0.7, -0.92), (0.7, -0.5), (-0.7, -0.5)], p.main)
    p.line([(-0.25, -0.9), (-0.25, -0.52)], 0.05)
    p.line([(0.25, -0.9), (0.25, -0.52)], 0.05)
    p.box(-0.82, -0.5, 0.82, -0.38, p.deep)


def tank_army(p: Pen) -> None:
    """The vehicle."""
    p.line([(0.2, -0.36), (0.98, -0.48)], 0.09, p.deep)
    p.shape([(-0.5, -0.1), (-0.4, -0.55), (0.25, -0.55), (0.42, -0.1)], p.main)
    p.box(-0.2, -0.68, 0.08, -0.55, p.deep)
    p.shape([(-0.85, 0.2), (-0.7, -0.12), (0.72, -0.12), (0.92, 0.2)], p.main)
    p.shape([(-0.95, 0.35), (-0.8, 0.14), (0.8, 0.14), (0.95, 0.35), (0.75, 0.66), (-0.75, 0.66)], p.deep)
    for x in (-0.64, -0.32, 0.0, 0.32, 0.64):
        p.oval(x, 0.4, 0.14, 0.14, p.light)
    p.dot(-0.05, -0.32, 0.1, p.second)


def tank_fish(p: Pen) -> None:
    """The glass tank, with two fish."""
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
    """The fish."""
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
    """The instrument, with its stick."""
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


# From here on: the things whose English names are unambiguous.


def cat(p: Pen) -> None:
    """It sits and shows its tail."""
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
    """It sits."""
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
    """It swims."""
    p.shape(
        [(-0.9, -0.02), (-0.55, 0.2), (0.2, 0.1), (0.5, 0.15), (0.55, 0.5), (0.1, 0.78), (-0.5, 0.7), (-0.8, 0.4)],
        p.main,
        smooth=True,
    )
    p.shape([(0.62, -0.45), (0.98, -0.32), (0.62, -0.2)], p.second)
    p.oval(0.38, -0.3, 0.33, 0.32, p.main)
    p.dot(0.48, -0.38, 0.06)
    p.shape([(-0.5, 0.28), (0.15, 0.3), (0.0, 0.58), (-0.35, 0.55)], p.light, smooth=True)


def snail(p: Pen) -> None:
    """With its house."""
    for x in (0.6, 0.82):
        p.line([(0.68, 0.15), (x + 0.05, -0.32)], 0.05)
        p.dot(x + 0.05, -0.34, 0.08)
    p.shape(
        [(-0.97, 0.72), (-0.5, 0.45), (0.35, 0.5), (0.55, 0.05), (0.85, 0.08), (0.9, 0.4), (0.6, 0.74)],
        p.light,
        smooth=True,
    )
    p.oval(-0.15, 0.02, 0.58, 0.56, p.main)
    turns = np.linspace(0, 1, 30)
    p.line(
        [(-0.15 + (0.05 + 0.36 * t) * np.cos(11 * t), 0.02 + (0.05 + 0.36 * t) * np.sin(11 * t)) for t in turns], 0.07
    )


def turtle(p: Pen) -> None:
    """It walks."""
    for x in (-0.5, 0.35):
        p.oval(x, 0.52, 0.17, 0.22, p.light)
    p.shape([(-0.75, 0.3), (-0.97, 0.42), (-0.7, 0.45)], p.light)
    p.shape([(0.5, 0.3), (0.62, -0.05), (0.85, -0.12), (0.98, 0.06), (0.88, 0.25), (0.7, 0.42)], p.light, smooth=True)
    p.dot(0.82, 0.02, 0.05)
    p.shape([(-0.78, 0.4), *arc(-0.08, 0.4, 0.7, 0.85, 180, 360, 15)], p.main)
    p.shape([(-0.3, -0.08), (0.12, -0.08), (0.22, 0.2), (-0.08, 0.36), (-0.38, 0.2)], p.second)
    for a, b in (
        ((-0.3, -0.08), (-0.4, -0.33)),
        ((0.12, -0.08), (0.22, -0.35)),
        ((0.22, 0.2), (0.6, 0.3)),
        ((-0.38, 0.2), (-0.74, 0.3)),
    ):
        p.line([a, b], 0.05)


def butterfly(p: Pen) -> None:
    """Wings spread."""
    for s in (1, -1):
        p.shape([(0, 0.0), (s * 0.35, -0.75), (s * 0.92, -0.72), (s * 0.85, -0.1)], p.main, smooth=True)
        p.shape([(0, 0.05), (s * 0.65, 0.08), (s * 0.75, 0.6), (s * 0.3, 0.75)], p.light, smooth=True)
        p.dot(s * 0.6, -0.45, 0.15, p.second)
        p.dot(s * 0.45, 0.38, 0.1, p.deep)
        p.line([(0, -0.4), (s * 0.25, -0.92)], 0.035)
    p.oval(0, 0.05, 0.09, 0.5, p.deep)


def cup(p: Pen) -> None:
    """It steams."""
    p.line(arc(0.5, 0.1, 0.35, 0.3, -80, 90, 12), 0.12, p.main)
    p.shape([(-0.68, -0.4), (0.56, -0.4), (0.44, 0.62), (0.3, 0.75), (-0.42, 0.75), (-0.56, 0.62)], p.main)
    p.oval(-0.06, -0.4, 0.62, 0.14, p.deep)
    p.line([(-0.5, 0.12), (0.38, 0.12)], 0.12, p.second)
    for x in (-0.25, 0.12):
        p.line([(x, -0.62), (x + 0.08, -0.75), (x - 0.04, -0.85), (x + 0.04, -0.97)], 0.04, p.white, smooth=True)


def chair(p: Pen) -> None:
    """From the side."""
    for x in (-0.48, 0.4):
        p.line([(x, 0.2), (x + 0.02, 0.92)], 0.1, p.deep)
    p.line([(0.62, 0.1), (0.66, 0.8)], 0.09, p.deep)
    for x in (-0.48, -0.1):
        p.line([(x, -0.9), (x, 0.1)], 0.1, p.deep)
    p.shape([(-0.5, -0.85), (-0.08, -0.92), (-0.08, -0.45), (-0.5, -0.38)], p.main)
    p.shape([(-0.58, 0.22), (-0.2, 0.0), (0.75, 0.0), (0.5, 0.22)], p.main)
    p.box(-0.58, 0.22, 0.5, 0.32, p.light)


def lamp(p: Pen) -> None:
    """A table lamp."""
    p.box(-0.06, -0.1, 0.06, 0.8, p.deep)
    p.oval(0, 0.84, 0.42, 0.11, p.deep)
    p.shape([(-0.3, -0.9), (0.3, -0.9), (0.7, -0.08), (-0.7, -0.08)], p.main)
    p.line([(-0.22, -0.8), (-0.5, -0.2)], 0.06, p.light)
    p.line([(0.35, -0.05), (0.35, 0.25)], 0.035)
    p.dot(0.35, 0.28, 0.06, p.second)


def book(p: Pen) -> None:
    """It is open."""
    p.shape([(0, -0.35), (-0.95, -0.5), (-0.95, 0.55), (0, 0.72), (0.95, 0.55), (0.95, -0.5)], p.main)
    for s in (1, -1):
        p.shape([(0, -0.3), (s * 0.4, -0.55), (s * 0.85, -0.52), (s * 0.85, 0.42), (s * 0.4, 0.4), (0, 0.6)], p.white)
        for y in (-0.3, -0.1, 0.1):
            p.line([(s * 0.18, y + 0.03), (s * 0.68, y - 0.03)], 0.04)
    p.line([(0, -0.3), (0, 0.62)], 0.05)


def car(p: Pen) -> None:
    """From the side."""
    p.shape([(-0.5, 0.0), (-0.3, -0.45), (0.3, -0.45), (0.58, 0.0)], p.light)
    p.line([(0.02, -0.43), (0.02, 0.0)], 0.06)
    p.shape([(-0.95, 0.02), (0.62, -0.05), (0.92, 0.1), (0.97, 0.42), (-0.95, 0.42)], p.main)
    for x in (-0.5, 0.52):
        p.oval(x, 0.42, 0.23, 0.23, p.ink)
        p.oval(x, 0.42, 0.1, 0.1, p.light)
    p.dot(0.86, 0.16, 0.07, p.second)


def boat(p: Pen) -> None:
    """A sailing boat."""
    p.line([(0, 0.4), (0, -0.95)], 0.06)
    p.shape([(0.08, -0.88), (0.8, 0.2), (0.08, 0.2)], p.white)
    p.shape([(-0.08, -0.6), (-0.6, 0.2), (-0.08, 0.2)], p.second)
    p.shape([(-0.92, 0.34), (0.92, 0.34), (0.6, 0.82), (-0.62, 0.82)], p.main)
    p.line([(-0.72, 0.5), (0.72, 0.5)], 0.06, p.light)


def umbrella(p: Pen) -> None:
    """It is open."""
    p.line([(0, -0.3), (0, 0.75), (0.12, 0.9), (0.28, 0.85), (0.3, 0.7)], 0.07, p.deep, smooth=True)
    hem = [(0.95, 0.0), (0.62, -0.14), (0.32, 0.02), (0, -0.12), (-0.32, 0.02), (-0.62, -0.14), (-0.95, 0.0)]
    p.shape([*arc(0, 0.0, 0.95, 0.82, 180, 360, 15), *hem], p.main)
    p.shape([(0, -0.82), (0.22, -0.5), (0.32, 0.02), (0, -0.12), (-0.32, 0.02), (-0.22, -0.5)], p.second)
    p.line([(0, -0.82), (0, -0.96)], 0.06)


def apple(p: Pen) -> None:
    """With a leaf."""
    p.line([(0, -0.4), (0.08, -0.9)], 0.08)
    p.shape([(0.08, -0.62), (0.35, -0.92), (0.72, -0.8), (0.45, -0.55)], p.second, smooth=True)
    p.shape(
        [
            (0, -0.4),
            (0.42, -0.55),
            (0.8, -0.15),
            (0.66, 0.5),
            (0.3, 0.88),
            (0, 0.78),
            (-0.3, 0.88),
            (-0.66, 0.5),
            (-0.8, -0.15),
            (-0.42, -0.55),
        ],
        p.main,
        smooth=True,
    )
    p.line([(-0.55, -0.12), (-0.48, 0.3)], 0.09, p.light)


def mushroom(p: Pen) -> None:
    """With dots."""
    p.shape([(-0.22, 0.0), (0.22, 0.0), (0.34, 0.85), (0.0, 0.92), (-0.34, 0.85)], p.white)
    p.shape([(-0.92, 0.12), *arc(0, 0.1, 0.92, 0.9, 185, 355, 13), (0.92, 0.12)], p.main)
    for x, y, r in ((-0.45, -0.2, 0.15), (0.05, -0.5, 0.17), (0.48, -0.14, 0.13)):
        p.oval(x, y, r, r * 0.9, p.white)


def clock(p: Pen) -> None:
    """An alarm clock."""
    for s in (1, -1):
        p.line([(s * 0.4, 0.6), (s * 0.55, 0.92)], 0.1, p.deep)
        p.oval(s * 0.48, -0.72, 0.24, 0.2, p.second)
    p.oval(0, 0.05, 0.74, 0.74, p.main)
    p.oval(0, 0.05, 0.56, 0.56, p.white)
    for a in np.radians(np.arange(0, 360, 30)):
        p.dot(0.46 * np.cos(a), 0.05 + 0.46 * np.sin(a), 0.035)
    p.line([(0, 0.05), (0, -0.32)], 0.06)
    p.line([(0, 0.05), (0.26, 0.16)], 0.07)


THINGS: dict[str, Callable[[Pen], None]] = {
    f.__name__: f
    for f in (
        bat_animal, bat_club, crane_bird, crane_machine, seal_animal, seal_stamp, bow_weapon, bow_ribbon,
        pipe_smoking, pipe_tube, palm_tree, palm_hand, spade_tool, spade_card, key_lock, key_button, plane_air,
        plane_tool, fan_folding, fan_electric, nut_food, nut_metal, bolt_lightning, bolt_screw, tank_army, tank_fish,
        bass_fish, bass_music, cat, rabbit, duck, snail, turtle, butterfly, cup, chair, lamp, book, car, boat,
        umbrella, apple, mushroom, clock,
    )
}  # fmt: skip
