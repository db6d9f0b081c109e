"""The contract, on every environment of the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest
from gym_runtime.checks import contract
from gym_runtime.environment import catalogue, requirements
from gym_runtime.errors import UsageError

NAMES = catalogue.names("environments")
HEAVY = {
    name
    for name in NAMES
    if (definition := catalogue.environment(name).definition).isolated or definition.extra
}
SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "nemo_gym_examples"


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in HEAVY)) for name in NAMES]
)
async def test_an_environment_keeps_the_contract(name: str) -> None:
    environment = catalogue.environment(name)
    try:
        requirements.require(environment)
    except UsageError as error:
        pytest.skip(error.message)
    broken = [
        f"{finding.rule}: {finding.detail}"
        for finding in await contract.check(environment)
        if not finding.passed
    ]
    assert not broken


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_of_its_namesake_are_its_tasks(name: str) -> None:
    files = sorted((SHARED / name).glob("*.jsonl"))
    if not files:
        pytest.skip(f"no rows of NeMo Gym's '{name}' in {SHARED}")
    resource = catalogue.environment(name).resource
    for path in files:
        for line in path.read_bytes().splitlines():
            assert resource.task(line).responses_create_params is not None
