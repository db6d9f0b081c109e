"""The curves of the recorded runs, and a table: python curve.py > ../../docs/images/self-play.svg

The diagrams are those of `examples/grpo_cpu/plot.py`: above the share of games won against the fixed opponent
with its standard error; below the share of games that the first player wins while the policy plays itself.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_found = importlib.util.spec_from_file_location("grpo_cpu_plot", HERE.parent / "grpo_cpu" / "plot.py")
assert _found is not None
assert _found.loader is not None
plot = importlib.util.module_from_spec(_found)
_found.loader.exec_module(plot)
Line = dict[str, Any]


def runs(folder: Path = HERE / "figures") -> dict[str, list[Line]]:
    """The recorded runs by their names, with the plot's name for what is drawn with its error."""
    return {
        name: [{"held_out": line["won"], **line} if "won" in line else line for line in lines]
        for name, lines in plot.runs(folder).items()
    }


def drawing(found: dict[str, list[Line]]) -> str:
    """The picture, as SVG."""
    style = (
        "text{font:12px sans-serif;fill:#444}.title{font-weight:bold}.end{text-anchor:end}"
        ".middle{text-anchor:middle}.grid{stroke:#ddd}.curve{fill:none;stroke-width:1.8}"
    )
    parts = [f"<style>{style}</style>", '<rect width="100%" height="100%" fill="#fff"/>']
    parts += plot.panel(
        found, "held_out", "Games won against a player of random legal moves, by step", 40, 220, 1.0
    )
    parts += plot.panel(found, "first_won", "Self-play: games that the player who begins wins", 330, 110, 1.0)
    for place, (colour, run) in enumerate(zip(plot.COLOURS, found, strict=False)):
        where = f'x="{plot.WIDTH - plot.RIGHT + 16}" y="{60 + 20 * place}"'
        parts.append(f'<text {where} style="fill:{colour}">{run}</text>')
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {plot.WIDTH} 470">\n{body}\n</svg>\n'


def table(found: dict[str, list[Line]]) -> Iterator[str]:
    """The lines of the page's table, one for each run."""
    for run, lines in found.items():
        looks = [line for line in lines if "won" in line]
        cells = [f"{one['won']:.0%} ± {one['error']:.0%} at {one['step']}" for one in (looks[0], looks[-1])]
        yield f"| {run} | {' | '.join(cells)} |"


if __name__ == "__main__":
    recorded = runs()
    print("\n".join(table(recorded)), file=sys.stderr)
    sys.stdout.write(drawing(recorded))
