"""How often each verifier is wrong, from the rates that an audit has kept beside the modules."""

from __future__ import annotations

from docstrings import table
from gym_runtime.environment import catalogue
from gym_testing.audit import kept_rates
from gym_testing.audit.artifact import CLASSES, VERSION, Rate

COLUMNS = ("gold_fails", "nop", "false_positive", "partial", "false_negative", "unstable", "error")

INTRODUCTION = f"""# Error rates

How often each environment's verifier is wrong, as [an audit](../how-to/audit.md) without a model finds
it. It is measured on the example rows, usually five, so the intervals are wide; `gym-runtime audit NAME
--input FILE` measures a data set. A cell has the rows with a finding, the rows that were measured, and
the 95 % interval of that share (Wilson); in the columns of wrong and right replies also how many
replies were tried. These are chosen, not drawn: a rate says how many rows can be cheated by a set of
replies. The set's version is in the last column; today's is {VERSION}, and rates of different sets are not
comparable. `?` is unobserved, which is not 0: there a model in a role decides, or no row was measured.
Findings that may be right by the rule are counted as suspect only.

With `strict=true` in the row, or `--set strict=true`, some environments have a better rule than NeMo Gym's or
than their authors'. It has a line of its own.

[What error rates mean](../explanation/error-rates.md) says what they cannot show. `gym-runtime audit NAME
--keep-rates` measures an environment again; tests measure other ones each day.
"""


def page() -> str:
    """The page: what the columns mean, and a line for each environment."""
    meanings = [[name.replace("_", " "), CLASSES[name]] for name in COLUMNS]
    rows: list[list[str]] = []
    for name in catalogue.names("environments"):
        _, source = catalogue.definition(name)
        kept = kept_rates.read(source.parent)
        of_name = [key for key in sorted(kept) if key == name or key.startswith(f"{name} ")]
        rows += [_row(key, kept[key]) for key in of_name] or [[f"`{name}`", *["?"] * (len(COLUMNS) + 3)]]
    header = ["environment", *(name.replace("_", " ") for name in COLUMNS), "suspect", "judged", "replies of"]
    return "\n\n".join(
        [
            INTRODUCTION,
            table(["column", "a row counts if"], meanings),
            "`judged` replies were decided by a model in a role.",
            table(header, rows),
        ]
    )


def _row(name: str, found: kept_rates.KeptRates) -> list[str]:
    rates = {kind: one.whole() for kind, one in found.rates.items()}
    suspects = sum(one.suspect for one in rates.values())
    return [
        f"`{name}`",
        *(_cell(kind, rates[kind]) for kind in COLUMNS),
        f"{suspects}",
        f"{found.judged}",
        found.audit,
    ]


def _cell(kind: str, one: Rate) -> str:
    if one.found is None or one.low is None or one.high is None:
        return "?"
    tried = f", {one.tried:,} tried" if kind in ("false_positive", "false_negative") else ""
    return f"{one.found}/{one.rows} ({one.low:.0%}–{one.high:.0%}){tried}"
