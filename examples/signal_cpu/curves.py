"""The curves of the recorded runs, and a table: python curves.py > ../../docs/images/signal-cpu.svg"""

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "grpo_cpu"))

from plot import RIGHT, STYLE, WIDTH, Line, panel, runs

FIGURES = Path(__file__).with_name("figures")
COLOURS = {"all-groups": "#d55e00", "with-signal": "#0072b2"}


def arm(run: str) -> str:
    """``with-signal`` of ``with-signal-2``."""
    return run.rpartition("-")[0]


def drawing(found: dict[str, list[Line]]) -> str:
    """The picture, as SVG."""
    # Over thousands of tokens, where the other example has steps.
    over = {run: [{**line, "step": line["tokens"] / 1000} for line in lines] for run, lines in found.items()}
    colours = [COLOURS[arm(run)] for run in found]
    title = "Held-out pass rate, over thousands of sampled tokens"
    parts = [f"<style>{STYLE}</style>", '<rect width="100%" height="100%" fill="#fff"/>']
    parts += panel(over, "passed", title, 40, 240, 0.8, each=20, colours=colours)
    for place, (name, colour) in enumerate(COLOURS.items()):
        x, y = WIDTH - RIGHT + 16, 60 + 20 * place
        parts.append(f'<text x="{x}" y="{y}" style="fill:{colour}">{name}, three seeds</text>')
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 310">\n{body}\n</svg>\n'


def table(found: dict[str, list[Line]]) -> Iterator[str]:
    """The lines of the page's table, one for each seed."""
    for run in found:
        name, _, seed = run.rpartition("-")
        if name != "all-groups":
            continue
        whole, half = found[run][-1], found[f"with-signal-{seed}"]
        reached = next((line for line in half if line["passed"] >= whole["passed"]), None)
        share = f"{reached['tokens'] / whole['tokens']:.2f}" if reached else "not reached"
        cells = [seed, f"{found[run][0]['passed']:.3f}", f"{whole['passed']:.3f} with {whole['tokens']:,}"]
        cells += [f"{half[-1]['passed']:.3f} with {half[-1]['tokens']:,}", share]
        cells += [f"{1 - line['flat'] / line['tokens']:.0%}" for line in (whole, half[-1])]
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    recorded = runs(FIGURES)
    print("\n".join(table(recorded)), file=sys.stderr)
    sys.stdout.write(drawing(recorded))
