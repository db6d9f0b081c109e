"""The contract of agents: what each keeps in any environment, checked in a small system in this process.

The environment has no tools, and ends an episode at the first answer with a message. The model's answers are
given. An agent that asks models in roles needs its own test (`gym_testing.small_system`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import cast

import anyio
from gym_runtime import (
    Completed,
    Environment,
    Episode,
    Failed,
    Reply,
    RolloutRecord,
    Step,
    Task,
    Truncated,
    Verdict,
)
from gym_runtime.adapters import Adapter, Agent
from gym_runtime.errors import ModelRefused

from gym_testing.checks.contract import Finding
from gym_testing.small_system import (
    Engine,
    Turn,
    answer,
    environment,
    function_call,
    reasoning,
    rollout_spec,
    row,
    small_system,
)

LIMIT_S = 20.0
"""How long the rollouts of one check may take. Their model answers at once."""
MAX_TURNS = 3
MANY = 20
ANSWERS: dict[str, Turn] = {
    "a call of an unknown tool": answer(function_call("no_such_tool")),
    "a call with broken arguments": answer(function_call("no_such_tool", "{")),
    "a thought and nothing else": answer(reasoning("hm")),
    "nothing": answer(),
}


class _Hall(Episode[Task]):
    async def step(self, reply: Reply) -> Step:
        return Step(terminated=bool(reply.messages))

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(len(reply.messages)))


async def check(module: ModuleType, agent: type[Agent], starting: Callable[[str], None]) -> list[Finding]:
    """Check every rule on an agent of a user's module.

    Args:
        starting: called with each rule before it is checked.
    """
    findings = [_explained(module)]
    for rule, problems in RULES.items():
        starting(rule)
        try:
            with anyio.fail_after(LIMIT_S):
                found = await problems(agent())
        except TimeoutError:
            found = [f"its rollouts did not end within {LIMIT_S:g} s: it waits, or asks without end"]
        findings.append(Finding(rule, not found, "; ".join(found)))
    return findings


def _explained(module: ModuleType) -> Finding:
    problem = "" if inspect.getdoc(module) else "its module has no docstring"
    return Finding("the module explains itself", not problem, problem)


async def _rollouts(agent: Agent, *turns: Turn, count: int = 1) -> list[RolloutRecord]:
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=_Hall, description="")))
        await system.add_model(cast("Adapter", Engine(*turns)))  # but for how it is made, it is one
        await system.add_agent({"own": agent}, slots=count)
        return await system.make(
            *[rollout_spec(row(), agent="own", task=n, max_turns=MAX_TURNS) for n in range(count)]
        )


def _ended(record: RolloutRecord) -> list[str]:
    if isinstance(record.outcome, Completed | Truncated):
        return []
    said = record.outcome.fault.message if isinstance(record.outcome, Failed) else "it was cancelled"
    return [f"the rollout failed: {said}"]


async def _a_message_ends_it(agent: Agent) -> list[str]:
    (record,) = await _rollouts(agent, answer("hello"))
    return _ended(record) or ([] if record.turns else ["it never asked the model: await rollout.respond()"])


async def _a_limit_ends_it(agent: Agent) -> list[str]:
    problems: list[str] = []
    for said, turn in ANSWERS.items():
        (record,) = await _rollouts(agent, turn)
        found = _ended(record)
        if record.turns > MAX_TURNS:
            found = [f"it asked {record.turns} times though max_turns is {MAX_TURNS}"]
        problems += [f"the model says {said}: {problem}" for problem in found]
    return problems


async def _an_error_passes(agent: Agent) -> list[str]:
    (record,) = await _rollouts(agent, ModelRefused("the contract lets the model refuse"))
    if isinstance(record.outcome, Failed) and record.outcome.fault.name == "ModelRefused":
        return []
    return ["the model refused, and the rollout did not fail with this error: let it pass"]


async def _many_at_once(agent: Agent) -> list[str]:
    records = await _rollouts(agent, answer(reasoning("hm"), "bye"), count=MANY)
    found = {(type(record.outcome).__name__, record.reward, record.turns) for record in records}
    if len(found) == 1:
        return []
    return [
        f"{MANY} rollouts with the same answers differ: keep what belongs to a rollout in run, not in self"
    ]


RULES: dict[str, Callable[[Agent], Awaitable[list[str]]]] = {
    "a message ends it": _a_message_ends_it,
    "a limit of turns ends it, whatever the model says": _a_limit_ends_it,
    "an error of the model passes through it": _an_error_passes,
    "one instance serves many rollouts at once": _many_at_once,
}
