"""How often each verifier is wrong, from the rates that an audit has kept beside the modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

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

The column *s* has how many seconds the audit took, on two processors that did other work, too. Where the
time was over before, the share of the replies that were judged stands behind it. Replies come in an order
that the seed draws, a few of each row in turn, so that these are a sample of all.

[What error rates mean](../explanation/error-rates.md) says what they cannot show. `gym-runtime audit NAME
--keep-rates` measures an environment again; tests measure other ones each day.
"""


STRICT = "strict=true"
WHY = """## Why a rate is not zero

A rule that is NeMo Gym's, or that of a benchmark's authors, stays as it is by default, so that scores can be
compared. A strict rule mends some of them. Where none is named, a program cannot tell, or what is found is
what the rule is for.
"""
GRADED = "graded: a reply is paid for the part that it has, so any text with a part of the answer has some"
FORM = "judged by its form only: any text that keeps the form is right"
UNBOXED = "by Math-Verify, an answer without its box counts, where the text says it before the box"
EQUALS_ALL = "the authors' tests run beside the program, and pass for an object whose `==` is always true"
REASONS: dict[str, str] = {
    "aime24": UNBOXED,
    "base_answer": "as by lm-evaluation-harness, the last number and the first letter count, even in a list",
    "base_choice": "an answer that does not end with its option is a failure, and no reward",
    "bigcodebench": EQUALS_ALL,
    "circle_count": "`00` in the box is the number 0, which is right",
    "citation_if": f"an answer that must cite nothing is {FORM}",
    "code_fim": "a piece in the midst of an expression, with a comment before it, is another program",
    "code_gen": "numbers are compared as numbers: a program that prints `2.5` for `2.50` is right",
    "equivalence_rule": GRADED,
    "example_multi_turn_gymnasium": "an example of a conversation: the answer need only occur in the text",
    "example_single_tool_call": "an example of a tool call: the reward is always 1",
    "example_tool_call_multireward": "an example of several rewards: right in part is paid in part",
    "graphwalks": GRADED,
    "ifbench": FORM,
    "iheval": "by the authors' rules: a reply that gives nothing away obeys, whatever else it says",
    "instruction_following": FORM,
    "livecodebench": "a function that returns `'13'` for 13 is right by the rule; one change has no effect",
    "livecodebench_x": "two rows are the same problem in two languages, so the other's program is right",
    "math500": "by Math-Verify, a text that ends with `0.8` is right without a box, however long it is",
    "math_with_autograder": "`10/10`, a word of a verdict, is the answer 1 of a row, and no box is demanded",
    "math_with_judge": UNBOXED,
    "mrcr": GRADED,
    "rolemrc": GRADED,
    "ruler": GRADED,
    "ruler2": GRADED,
    "scicode": f"{EQUALS_ALL}; to numpy, a number and a list with it are equal",
    "structeval": GRADED,
    "tau2_airline": "by the authors' rule: a look-up that changes nothing may be another one",
    "toolsandbox": "the state at the end counts: look-ups that change nothing may be others",
    "ugphysics_judge": "`1.0`, a word of a verdict, is right on two rows, and no box is demanded",
    "wmt_translation": GRADED,
    "xstest": "by a rule without a judge, a text that answers another question answers",
}
"""Of rates that no strict rule mends, or not whole."""


def page() -> str:
    """The page: what the columns mean, and a line for each environment."""
    meanings = [[name.replace("_", " "), CLASSES[name]] for name in COLUMNS]
    rows: list[list[str]] = []
    for name in catalogue.names("environments"):
        _, source = catalogue.definition(name)
        kept = kept_rates.read(source.parent)
        of_name = [key for key in sorted(kept) if key == name or key.startswith(f"{name} ")]
        rows += [_row(key, kept[key]) for key in of_name] or [[f"`{name}`", *["?"] * (len(COLUMNS) + 4)]]
    header = [
        "environment",
        *(name.replace("_", " ") for name in COLUMNS),
        "suspect",
        "judged",
        "s",
        "replies of",
    ]
    return "\n\n".join(
        [
            INTRODUCTION,
            table(["column", "a row counts if"], meanings),
            "`judged` replies were decided by a model in a role.",
            table(header, rows),
            WHY,
            table(["environment", "found", "why"], _reasons()),
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
        _time(found),
        found.audit,
    ]


def _time(found: kept_rates.KeptRates) -> str:
    if found.seconds is None:
        return "?"
    reached = 1 - found.not_reached / found.planned if found.planned else 1.0
    return f"{found.seconds:.0f}" if reached == 1 else f"{found.seconds:.0f} ({reached:.0%})"


def sentence(name: str, folder: Path) -> str:
    """What is said of an environment on its own page; empty if its rates are unobserved."""
    kept = kept_rates.read(folder)
    said = [_said(kept[key].rates) for key in (name, f"{name} {STRICT}") if key in kept]
    if not any(said):
        return ""
    return f"{f'; with `{STRICT}` it '.join(filter(None, said))} ([error rates](../error-rates.md))"


def _said(rates: Mapping[str, kept_rates.KeptRate]) -> str:
    paid, refused = rates["false_positive"], rates["false_negative"]
    parts = [] if paid.found is None else [f"pays for wrong replies on {paid.found} of {paid.rows} rows"]
    parts += [] if refused.found is None else [f"refuses right ones on {refused.found} of {refused.rows}"]
    return ", ".join(parts)


def _reasons() -> Iterator[list[str]]:
    """A row for each environment with a rate above zero.

    Raises:
        KeyError: it has neither a strict rule that mends it nor a reason in `REASONS`.
    """
    for name in catalogue.names("environments"):
        _, source = catalogue.definition(name)
        kept = kept_rates.read(source.parent)
        found = _found(kept.get(name))
        if not found:
            continue
        strict = kept.get(f"{name} {STRICT}")
        mended = "" if strict is None or _found(strict) else f"mended with `{STRICT}`"
        reason = "; ".join(filter(None, (mended, REASONS.get(name, ""))))
        if not reason:
            raise KeyError(f"error_rates.REASONS needs a sentence on {name}: {found}")
        yield [f"`{name}`", ", ".join(found), reason]


def _found(one: kept_rates.KeptRates | None) -> list[str]:
    """The rates that are not zero."""
    rates = one.rates if one else {}
    return [
        f"{kind.replace('_', ' ')} {rate.found}/{rate.rows}"
        for kind in COLUMNS
        if (rate := rates.get(kind)) is not None and rate.found
    ]


def _cell(kind: str, one: Rate) -> str:
    if one.found is None or one.low is None or one.high is None:
        return "?"
    tried = f", {one.tried:,} tried" if kind in ("false_positive", "false_negative") else ""
    return f"{one.found}/{one.rows} ({one.low:.0%}–{one.high:.0%}){tried}"
