"""The curves of the recorded runs, and a table: python plot.py > ../../docs/images/grpo-cpu.svg

A folder of other runs may be named: python plot.py figures/signal > ../../docs/images/grpo-cpu-signal.svg

Above the held-out reward, with its standard error, or that of the steps' own rollouts (``figures/gpu``);
below the mean difference between the log-probabilities of trainer and engine, and the length of an answer in
tokens.
"""

import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).with_name("figures")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7f6000", "#56b4e9")
WIDTH, LEFT, RIGHT = 760, 60, 190
STYLE = (
    "text{font:12px sans-serif;fill:#444}.title{font-weight:bold}.end{text-anchor:end}"
    ".middle{text-anchor:middle}.grid{stroke:#ddd}.curve{fill:none;stroke-width:1.8}"
)
Line = dict[str, Any]


def runs(folder: Path) -> dict[str, list[Line]]:
    """The recorded runs by their names, in order."""
    return {
        file.stem: [json.loads(line) for line in file.read_text().splitlines()]
        for file in sorted(folder.glob("*.jsonl"), key=lambda file: file.stem)
    }


def panel(
    found: dict[str, list[Line]],
    name: str,
    title: str,
    top: int,
    height: int,
    limit: float,
    each: int = 20,
    colours: Sequence[str] = COLOURS,
) -> Iterator[str]:
    """One diagram of what the lines of each run call ``name``, over the steps; every so many are named."""
    last = max(line["step"] for lines in found.values() for line in lines if "step" in line)

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(value: float) -> float:
        return top + height - height * min(value, limit) / limit

    yield f'<text x="{LEFT}" y="{top - 10}" class="title">{title}</text>'
    for part in range(5):
        value = limit * part / 4
        yield f'<path class="grid" d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" class="end">{value:.3g}</text>'
    for step in range(0, int(last) + 1, each):
        yield f'<text x="{x(step):.1f}" y="{top + height + 18}" class="middle">{step}</text>'
    for colour, (run, lines) in zip(colours, found.items(), strict=False):
        points = [(x(line["step"]), y(line[name])) for line in lines if name in line]
        path = "L".join(f"{across:.1f} {up:.1f}" for across, up in points)
        yield f'<path class="curve" d="M{path}" stroke="{colour}"><title>{run}</title></path>'
        if name == "held_out":
            yield from errors(lines, x, y, colour)


def errors(
    lines: list[Line], x: Callable[[float], float], y: Callable[[float], float], colour: str
) -> Iterator[str]:
    """The standard errors of the held-out reward, as upright strokes."""
    for line in lines:
        if "held_out" in line:
            low, high = y(line["held_out"] - line["error"]), y(line["held_out"] + line["error"])
            yield f'<path d="M{x(line["step"]):.1f} {low:.1f}V{high:.1f}" stroke="{colour}"/>'


def drawing(found: dict[str, list[Line]]) -> str:
    """The picture, as SVG."""
    parts = [f"<style>{STYLE}</style>", '<rect width="100%" height="100%" fill="#fff"/>']
    held_out = all(sum("held_out" in line for line in lines) > 1 for lines in found.values())
    name, title = (
        ("held_out", "Held-out reward") if held_out else ("reward", "Mean reward of a step's rollouts")
    )
    parts += panel(found, name, f"{title}, by step", 40, 220, 1.0)
    parts += panel(
        found,
        "logp_difference",
        "Trainer against engine: mean difference of log-probabilities, absolute",
        330,
        110,
        0.2,
    )
    parts += panel(found, "tokens", "Tokens of an answer", 510, 110, 32)
    for place, (colour, run) in enumerate(zip(COLOURS, found, strict=False)):
        parts.append(
            f'<text x="{WIDTH - RIGHT + 16}" y="{60 + 20 * place}" style="fill:{colour}">{run}</text>'
        )
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 650">\n{body}\n</svg>\n'


def table(found: dict[str, list[Line]]) -> Iterator[str]:
    """The lines of the page's table, one for each run."""
    for run, lines in found.items():
        looks = [line for line in lines if "held_out" in line]
        steps = [line for line in lines if "reward" in line]
        first, last = looks[0], looks[-1]

        def mean(name: str, of: list[Line] = steps) -> float:
            return statistics.fmean(line[name] for line in of)

        seconds = statistics.median(line["seconds"] for line in steps)
        if first is last:
            began, ended = (f"{one['reward']:.3f}" for one in (steps[0], steps[-1]))
            gap = f"{mean('logp_difference'):.3f}"
            yield f"| {run} | {steps[-1]['step']} | {began} | {ended} | {gap} | {seconds:.1f} |"
            continue
        cells = [
            run,
            f"{steps[-1]['step']}",
            f"{first['held_out']:.3f} ± {first['error']:.3f}",
            f"{last['held_out']:.3f} ± {last['error']:.3f} at {last['step']}",
            f"{first['exact']:.0%}, {last['exact']:.0%}",
            f"{first['cut_short']:.0%}, {last['cut_short']:.0%}",
            f"{mean('logp_difference'):.3f}",
            f"{mean('clipped'):.2%}",
            f"{mean('far'):.1%}",
            f"{seconds:.0f}",
        ]
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    recorded = runs(Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES)
    print("\n".join(table(recorded)), file=sys.stderr)
    sys.stdout.write(drawing(recorded))
