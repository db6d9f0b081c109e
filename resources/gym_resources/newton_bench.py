"""Discover a physical law of a simulated universe by experiments, and submit it as a Python function.

Twelve modules (gravity, Coulomb, …), each with three laws in three difficulties, seen through one of three
systems: 324 tasks. The tool ``run_experiment_MODULE`` measures, with noise if the row says so; the noise
depends on the row's ``id`` and the number of the experiment only. A row may offer ``execute_python``, too.

The law is the last ``<final_law>`` block of the last message that has one: Python with a function
``discovered_law`` of exactly the module's parameters. It runs in the sandbox, on 5,000 fixed points. With x
the root mean square of the differences of log(1 + |value|), points where a law is undefined left out,

    reward = 0.7 (1 - 2 x / (x + 3)) + 0.3 (1 if it has the form of the true law, else -1)

Without a law, or with one that cannot be run, it is 0; without x (wrong parameters, nowhere defined) 1 for
the right form, else -0.3. A model in the role ``judge`` says whether the form is right: constants are
interchangeable, exponents are not. Without a judge the values say it: both laws differ by the same factor at
every point; so constants inside of a sum or an exponent must be right.

So a law that is undefined but where it is easily right, such as 0 at tiny distances, is worth 0.4. With
``strict``, which NeMo Gym lacks, its value counts as 0 where it is undefined and the true law is not.

Rows, tools, laws, points and rewards as of NeMo Gym's environment of this name. Different on purpose: a judge
that fails, or whose answer has no label, is a failure, not a wrong form, which is worth up to 0.4
(``--set unreadable_judge=rewarded`` has it so); noise can be repeated; submissions run isolated, with all of
Python.
What the systems show is our own, so rewards agree with NeMo Gym's, and measurements of the simple and the
complex systems do not. ``prepare newton_bench --size N`` makes rows; settings choose among them.
Source: NewtonBench (arXiv 2510.07172, MIT), NeMo Gym's ``newton_bench``; prompts and rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast, get_args

from gym_runtime import Environment, Reply, Role, UsageError, Verdict

from gym_resources.judging.asking import Judging
from gym_resources.newton import form, universes
from gym_resources.newton.apparatus import APPARATUS, System
from gym_resources.newton.laboratory import Laboratory
from gym_resources.newton.laws import Difficulty, Version
from gym_resources.newton.submission import Comparison, compared, numeric_score, submitted

NUMERIC, SYMBOLIC = 0.7, 0.3
NO_FORM_REWARD = -0.3


class Discovery(Laboratory):
    async def verify(self, reply: Reply) -> Verdict:
        task, code = self.task, submitted(reply)
        asked: dict[str, Any] = {"judge_evaluations": [], "judge_unparseable": 0}
        same_form: bool | None = None
        found = Comparison(ran=False, problem="no law was submitted")
        if code:
            found = await compared(task.module_name, task.law, code, strict=task.strict)
        judge = self.models.get("judge")
        if code and found.ran and not found.fits:
            same_form = False
        elif code and found.ran and judge is not None:
            judged = Judging(judge, task, form.read)
            same_form = await judged.label(form.prompt(task.law, code), rewarded=True) == "YES"
            asked = judged.fields()
        elif found.ran:
            same_form = found.proportional
        components = parts(same_form, found.rmsle)
        fields = {
            "difficulty": task.difficulty,
            "system": task.system,
            "noise_level": task.noise_level,
            "law_version": task.law_version,
            "extracted_law": code,
            "rmsle": found.rmsle,
            "compared_points": found.points,
            "exact_accuracy": None if same_form is None else float(same_form),
            "symbolic_equivalent": same_form,
            "evaluation_error": found.problem or None,
            **asked,
        }
        return Verdict(sum(components.values()), components, fields)


def parts(same_form: bool | None, rmsle: float | None) -> dict[str, float]:
    """The parts of the reward; both may be unknown."""
    if same_form is None:
        return {"numeric": 0.0, "symbolic": 0.0}
    if rmsle is None:
        return {"numeric": 0.0, "symbolic": 1.0 if same_form else NO_FORM_REWARD}
    return {"numeric": NUMERIC * numeric_score(rmsle), "symbolic": SYMBOLIC if same_form else -SYMBOLIC}


def generate(
    size: int,
    seed: int,
    modules: str = "",
    law_versions: str = "",
    difficulties: str = "",
    systems: str = "",
    noise_levels: str | float = 0.0,
    code: bool = False,
) -> Iterator[dict[str, Any]]:
    """Rows for all universes, or for some modules, laws, difficulties, systems and noise levels, each
    separated by commas; with ``code`` the model may run Python.

    Raises:
        UsageError: there is no such choice.
    """
    try:
        levels = [float(level) for level in str(noise_levels).split(",")]
    except ValueError:
        raise UsageError(f"noise_levels={noise_levels}: numbers, separated by commas, as 0,0.01") from None
    if any(not 0 <= level <= 10 for level in levels):
        raise UsageError(f"noise_levels={noise_levels}: from 0 to 10")
    chosen = universes.universes(
        levels,
        _some(modules, tuple(APPARATUS), "modules"),
        cast("list[Version]", _some(law_versions, get_args(Version), "law_versions")),
        cast("list[Difficulty]", _some(difficulties, get_args(Difficulty), "difficulties")),
        cast("list[System]", _some(systems, get_args(System), "systems")),
    )
    return universes.generated(size, seed, chosen, code=code)


def _some(wanted: str, known: Sequence[str], name: str) -> list[str]:
    chosen = [one.strip() for one in wanted.split(",") if one.strip()]
    for one in chosen:
        if one not in known:
            raise UsageError(f"{name}={wanted}: there is no '{one}'; there are: {', '.join(known)}")
    return chosen


environment = Environment(
    resource=Discovery,
    description="Laws of simulated universes, discovered by experiments (NewtonBench).",
    domain="agent",
    max_turns=50,
    roles=(Role(name="judge", sampling={"temperature": 0.6}, optional=True),),
    data_license="Apache-2.0",
    extra="sandbox",
    generate=generate,
)
