"""The audit finds planted holes of ten kinds of verifier, and accuses no sound one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from gym_runtime.environment import LoadedEnvironment, catalogue
from gym_testing.audit.measuring import Auditor, Plan
from testing.audit.planted import HEAD, HOLES, KINDS, rows

pytestmark = pytest.mark.anyio
PLAN = Plan(seconds=40.0, repeats=1, elsewhere=False, slow=False, kept=10_000)


def load(folder: Path, name: str, body: str, lines: list[object]) -> LoadedEnvironment:
    module = folder / f"{name}.py"
    module.write_text(HEAD + body)
    module.with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sys.modules.pop(f"gym_runtime_file_{name}", None)
    return catalogue.environment(str(module))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "code")) for kind in KINDS]
)
async def test_holes_are_found_and_sound_verifiers_are_not_accused(kind: str, tmp_path: Path) -> None:
    planted = rows(kind)
    environment = load(tmp_path, f"planted_{kind}", KINDS[kind][0], [row for _, row in planted])
    auditor = Auditor(str(environment.source), environment, PLAN)
    made = await auditor.measure()
    found = {
        (planted[finding.row - 1][0], finding.kind, finding.source)
        for finding in made.findings
        if not finding.suspect
    }
    assert not [one for one in found if one[0] == ""], "a sound verifier is accused"
    assert {hole for hole, what, _ in found if what == "false_positive"} == set(HOLES[kind])
    assert made.rates["gold_fails"].found == 0
