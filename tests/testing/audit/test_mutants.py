"""Holes that no author chose: which share of them does the audit find?

The audit's replies were extended with the verifiers ``a``, ``b`` and ``c`` in view. ``d`` were written
afterwards, and measured as they are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.environment import LoadedEnvironment, catalogue, examples
from gym_testing.audit.measuring import Auditor, Plan
from gym_testing.checks.subject import Subject
from testing.audit.holes.mutants import holes, played
from testing.audit.holes.sound_rules import SOUND

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
PLAN = Plan(seconds=600.0, rows=10_000, repeats=0, elsewhere=False, slow=False, kept=100_000)
SLOW = ("code", "sql", "judge_b")
MODULE = '''"""Verifiers of the tests."""
import sys

sys.path.insert(0, {tests!r})
from typing import Any

from gym_runtime import Environment, Reply, Role, Session, Task, Verdict, tool
from testing.audit.holes.mutants import pays


class RuleTask(Task):
    expected_answer: Any
    verifier: str


def verify(task: RuleTask, reply: Reply) -> Verdict:
    calls = [(call.name, call.arguments) for call in reply.function_calls]
    return Verdict(float(pays(task.verifier, reply.text, calls, task.expected_answer)))


{more}
'''
OTHERS = 'environment = Environment(resource=verify, description="Answers.")'
MORE = {
    "judge": OTHERS[:-1] + ', roles=(Role(name="judge", optional=True),))',
    "code": OTHERS[:-1] + ", isolated=True, verify_timeout_s=0.5)",
    "state": """
class Shelf(Session[RuleTask]):
    @tool
    def put(self, key: str, value: int) -> str:
        "Put something on the shelf."
        return "put"

    @tool
    def drop(self, key: str) -> str:
        "Take something off the shelf."
        return "dropped"

    async def verify(self, reply: Reply) -> Verdict:
        return verify(self.task, reply)


environment = Environment(resource=Shelf, description="A shelf.")
""",
}


def line(verifier: str, goal: Any) -> dict[str, Any]:
    one = SOUND[verifier.partition(" ")[0]]
    gold = one.write(goal)
    names = {call for call, _ in played(gold)[1]} | {"sink"} if not isinstance(gold, str) else set[str]()
    tools: list[Any] = [
        {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}
        for name in sorted(names)
    ]
    return {
        "responses_create_params": {
            "input": f"Question {one.goals.index(goal)}: what is wanted?",
            **({"tools": tools} if tools else {}),
        },
        "expected_answer": goal,
        "verifier": verifier,
        "gold": gold,
        **one.fields,
    }


def load(folder: Path, kind: str, lines: Sequence[dict[str, Any]]) -> LoadedEnvironment:
    module = folder / f"mutants_of_{kind}.py"
    module.write_text(MODULE.format(tests=str(Path(__file__).parents[2]), more=MORE.get(kind, OTHERS)))
    module.with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sys.modules.pop(f"gym_runtime_file_{module.stem}", None)
    return catalogue.environment(str(module))


async def audited(twin: str, folder: Path) -> tuple[list[str], list[str]]:
    """The holes in a verifier that the audit does not find, and what it says against the verifier itself."""
    left: set[str] = set(holes(twin))
    accused: list[str] = []
    lines: list[dict[str, Any]] = [
        line(verifier, goal) for verifier in (twin, *left) for goal in SOUND[twin].goals
    ]
    environment = load(folder, twin.partition("_")[0], lines)
    auditor = Auditor("mutants", environment, PLAN)
    made = await auditor.measure()
    assert (made.rates["gold_fails"].found, made.cost.not_reached) == (0, 0)
    for stored in auditor.replies:
        row: dict[str, Any] = lines[stored.finding.row - 1]
        if stored.finding.suspect or stored.finding.kind != "false_positive":
            continue
        if row["verifier"] == twin:
            accused.append(f"{twin}: {stored.finding.source}: {stored.response!r}")
        elif row["verifier"] in left:
            twins = json.dumps({**row, "verifier": twin}).encode()
            example = examples.example(environment, "twin", 1, twins)
            verdict = await Subject(environment, [example]).judge(example, stored.response)
            if verdict.reward == 0:
                left.remove(row["verifier"])
    return sorted(left), accused


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("twin", [twin for twin in sorted(SOUND) if not twin.startswith(SLOW)])
async def test_a_sound_verifier_pays_what_is_right_and_is_not_accused(twin: str, tmp_path: Path) -> None:
    missed, accused = await audited(twin, tmp_path)
    assert accused == []
    assert len(missed) < len(holes(twin))


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("groups", "least"), [("abc", 0.8), ("d", 0.8)])
async def test_most_holes_are_found(groups: str, least: float, tmp_path: Path) -> None:
    twins = [twin for twin in sorted(SOUND) if twin[-1] in groups]
    found = {twin: await audited(twin, tmp_path) for twin in twins}
    count = sum(len(holes(twin)) for twin in twins)
    missed = [hole for some, _ in found.values() for hole in some]
    print(f"{count - len(missed)} of {count} holes in {groups}; missed: {', '.join(missed)}")
    assert [said for _, some in found.values() for said in some] == []
    assert count - len(missed) >= least * count
