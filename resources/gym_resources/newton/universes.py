"""Rows of ``newton_bench``: the prompt that describes an apparatus, and the 324 tasks.

Source: the tasks are NewtonBench's (arXiv 2510.07172); the prompts are our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any, NamedTuple

from gym_runtime import Prompt
from gym_runtime.environment import collect_tools

from gym_resources.newton.apparatus import APPARATUS, SYSTEMS, System
from gym_resources.newton.laboratory import PREFIX, Laboratory
from gym_resources.newton.laws import DIFFICULTIES, VERSIONS, Difficulty, Law, Version, law

PROMPT = Prompt("""\
You are a physicist in a simulated universe. Its laws may differ from those that you know: in the constants,
in the exponents, and in which quantities matter at all. Find one law by experiments.

What is asked: {wanted}.

The apparatus: {shows} Numbers that it does not use may be null.

Each call of the tool {tool} makes one experiment with: {sets}. {noise} Try values over several orders of
magnitude, and change one of them at a time.
{code}
Only what is said of the apparatus holds for certain; rely on your data for everything else.

When you are sure, answer with the law as one Python function between <final_law> tags, and nothing else in
the answer:

<final_law>
{header}
    import math
    C = 1.5
    return C * math.sqrt({first})
</final_law>

That is only an example of the form. The function has exactly this name and these parameters, also where the
law does not depend on one of them: {parameters}. It imports what it needs, and defines its constants, inside.
""")
NOISY = "Measurements are noisy: the standard deviation is {level:g} times the value."
EXACT = "Measurements are exact."
CODE = """
The tool execute_python runs Python code that you may use to analyse the data; its variables are kept.
"""


class Universe(NamedTuple):
    """One of the 324 tasks, with its noise."""

    noise_level: float
    module_name: str
    law_version: Version
    difficulty: Difficulty
    system: System


def universes(
    noise_levels: Sequence[float],
    modules: Sequence[str],
    versions: Sequence[Version],
    difficulties: Sequence[Difficulty],
    systems: Sequence[System],
) -> list[Universe]:
    """All combinations of some choices; an empty one stands for all there are."""
    return [
        Universe(*chosen)
        for chosen in product(
            noise_levels or (0.0,),
            modules or tuple(APPARATUS),
            versions or VERSIONS,
            difficulties or DIFFICULTIES,
            systems or SYSTEMS,
        )
    ]


def row(number: int, universe: Universe, *, code: bool = False) -> dict[str, Any]:
    """One row, in NeMo Gym's format.

    Args:
        number: its id, on which the noise depends.
        code: the model may run Python.
    """
    noise, module, version, difficulty, system = universe
    found, apparatus = law(module, difficulty, version), APPARATUS[module]
    setup, tools = apparatus.setup(system), collect_tools(Laboratory)
    names = [f"{PREFIX}{module}", *(("execute_python", "end_session") if code else ())]
    pairs = zip(found.parameters, apparatus.vanilla, strict=True)
    prompt = PROMPT.fill(
        wanted=apparatus.wanted,
        shows=setup.shows,
        tool=names[0],
        sets=", ".join(setup.sets),
        noise=NOISY.format(level=noise) if noise else EXACT,
        code=CODE if code else "",
        header=header(found),
        first=found.parameters[0],
        parameters=", ".join(mine if mine == set_ else f"{mine} ({set_})" for mine, set_ in pairs),
    )
    return {
        "id": number,
        **universe._asdict(),
        "responses_create_params": {
            "input": [{"role": "user", "content": prompt}],
            "tools": [tools[name].definition() for name in names],
            "parallel_tool_calls": True,
        },
        "agent_ref": {"type": "responses_api_agents", "name": "newton_bench_simple_agent"},
    }


def generated(size: int, seed: int, universes: Sequence[Universe], *, code: bool) -> Iterator[dict[str, Any]]:
    """So many rows: all universes in a random order, then again in another one, with other noise."""
    random, number = Random(seed), 0
    while True:
        for universe in random.sample(universes, len(universes)):
            if number == size:
                return
            yield row(number, universe, code=code)
            number += 1


def header(law: Law) -> str:
    """The first line of a submission.

    >>> header(law("m9_hooke_law", "easy", "v0"))
    'def discovered_law(x):'
    """
    return f"def discovered_law({', '.join(law.parameters)}):"
