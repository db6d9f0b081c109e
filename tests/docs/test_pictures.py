"""The pictures of the pages can be read, and show what the pages say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from docs.pages import PAGES, ROOT, first_command
from docs.terminal import Line, drawing, typed
from tables import table

IMAGES = ROOT / "docs" / "images"
SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[str]:
    """The lines of an SVG's text."""
    return ["".join(one.itertext()) for one in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_a_session_is_drawn_line_by_line_in_its_order() -> None:
    picture = drawing(
        "a run", ["run x"], [Line("a < b & c", 0.5), Line("", 0.6), Line("mean reward  1", 2.0)]
    )
    assert texts(picture) == ["$ run x", "a < b & c", "mean reward  1"]
    delays = [float(delay) for delay in re.findall(r"animation-delay:([\d.]+)s", picture)]
    assert delays == sorted(delays)
    assert "prefers-reduced-motion" in picture


def test_the_moving_picture_is_of_the_first_command() -> None:
    shown = texts((IMAGES / "run.svg").read_text())
    assert [line.removeprefix("$ ").strip() for line in shown[:2]] == [
        line.strip() for line in typed(first_command())
    ]
    reward = next(line for line in shown if line.startswith("mean reward"))
    assert 0 < float(reward.split()[2]) < 1


@table("name", sorted(path.name for path in IMAGES.glob("*.svg")))
def test_a_drawing_has_a_background_of_its_own(name: str) -> None:
    """So it is readable on a light and on a dark page."""
    picture = ElementTree.fromstring((IMAGES / name).read_text())
    assert next(picture.iter(f"{SVG}rect")).get("width") in {"100%", picture.attrib["viewBox"].split()[2]}


def test_pages_have_pictures_and_no_source_of_pictures() -> None:
    """A diagram's source is drawn by a script from another host, where there is one."""
    for page in PAGES:
        assert "```mermaid" not in page.read_text(), page
        for alternative, _ in re.findall(r"!\[(.*?)\]\((.*?)\)", page.read_text()):
            assert alternative, f"{page} has a picture without words for it"
