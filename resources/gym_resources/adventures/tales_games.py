"""The games of TALES by their numbers, and where Java is.

Source: Cui et al. 2025, arXiv:2504.14128, github.com/microsoft/tale-suite (MIT): the numbers are the order in
which it lists a framework's games, the settings are those that it gives them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

SMALL = "includeDoors=0, limitInventorySize=0"
EXPRESS: tuple[tuple[str, str], ...] = (
    ("cookingworld", f"numLocations=1, numIngredients=2, numDistractorItems=5, {SMALL}"),
    ("twc", f"numLocations=1, numItemsToPutAway=1, {SMALL}"),
    ("coin", "numLocations=1, numDistractorItems=5, limitInventorySize=0"),
    ("arithmetic", ""),
    ("mapreader", f"numLocations=2, maxDistanceApart=1, maxDistractorItemsPerLocation=2, {SMALL}"),
    ("sorting", ""),
    *(("simonsays", f"gameLength={length}, numDistractors=4, memorization=0") for length in (10, 50, 100)),
    *(
        ("simonsays", f"gameLength={length}, numDistractors=4, memorization=1, verbose={verbose}")
        for verbose in (0, 1)
        for length in (10, 50, 100)
    ),
    ("peckingorder", ""),
)
SCIENCE = (
    *("boil", "change-the-state-of-matter-of", "chemistry-mix", "chemistry-mix-paint-secondary-color"),
    *("chemistry-mix-paint-tertiary-color", "find-animal", "find-living-thing", "find-non-living-thing"),
    *("find-plant", "freeze", "grow-fruit", "grow-plant", "identify-life-stages-1", "identify-life-stages-2"),
    *("inclined-plane-determine-angle", "inclined-plane-friction-named-surfaces"),
    *("inclined-plane-friction-unnamed-surfaces", "lifespan-longest-lived"),
    *("lifespan-longest-lived-then-shortest-lived", "lifespan-shortest-lived"),
    *("measure-melting-point-known-substance", "measure-melting-point-unknown-substance", "melt"),
    *("mendelian-genetics-known-plant", "mendelian-genetics-unknown-plant", "power-component"),
    *("power-component-renewable-vs-nonrenewable-energy", "test-conductivity"),
    *("test-conductivity-of-unknown-substances", "use-thermometer"),
)
ELSEWHERE = {
    "textworld": "TextWorld's cooking games",
    "alfworld": "ALFWorld's games",
    "jericho": "Jericho's games, of which many are not free,",
}


def games(framework: str) -> tuple[tuple[str, str], ...]:
    """The games of a framework, each with its settings."""
    return EXPRESS if framework == "textworld_express" else tuple((name, "") for name in SCIENCE)


def java() -> Path | None:
    """The home folder of the Java on the path; None without Java."""
    found = shutil.which("java")
    return Path(os.path.realpath(found)).parents[1] if found else None


def java_folders(home: Path) -> list[str]:
    """What Java reads: its home, and the folder of its settings where these are links to elsewhere."""
    linked = (Path(os.path.realpath(path)) for path in (home / "conf").rglob("*"))
    return [str(home), *sorted({str(Path(*path.parts[:3])) for path in linked if "java" in path.parts[2]})]
