"""The page's colours, as people with each kind of colour blindness see them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from tables import table
from view.node import PAGE

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency",
# 2009, severity 1.
EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "tritanopia": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}
REWARDS = ("good-fill", "bad-fill", "part-fill", "none-fill")
HOPS = ("none-fill", "accent", "part-fill", "role-fill", "good-fill")


def themes() -> list[dict[str, str]]:
    """The colours of the light theme, and of the dark one, by their names."""
    style = (PAGE / "style.css").read_text()
    blocks = re.findall(r":root[^{]*\{([^{}]*--ground[^{}]*)\}", style)
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]


def seen(colour: str, eye: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """A colour in CIELAB, as an eye sees it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    r, g, b = (
        min(1, max(0, sum(part * value for part, value in zip(row, linear, strict=True)))) for row in eye
    )
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@table("eye", EYES)
@table("dark", [False, True])
def test_colours_differ_for_every_eye(dark: bool, eye: str) -> None:
    colours = themes()[dark]
    for names, least in ((REWARDS, 20), (HOPS, 12)):
        for one, other in itertools.combinations(names, 2):
            pairs = zip(seen(colours[one], EYES[eye]), seen(colours[other], EYES[eye]), strict=True)
            apart = sum((a - b) ** 2 for a, b in pairs) ** 0.5
            assert apart >= least, f"{one} and {other} with {eye}: {apart:.0f}"


@table("eye", EYES)
@table("dark", [False, True])
def test_the_heat_maps_colours_go_from_light_to_dark_for_every_eye(dark: bool, eye: str) -> None:
    lightness = [seen(themes()[dark][f"h{step}"], EYES[eye])[0] for step in range(6)]
    steps = [(after - before) * (1 if dark else -1) for before, after in itertools.pairwise(lightness)]
    assert min(steps) >= 6, f"{steps} with {eye}"


def test_both_dark_themes_are_the_same() -> None:
    assert len(themes()) == 3
    assert themes()[1] == themes()[2]
