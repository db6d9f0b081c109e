"""The contract, on every environment of the catalogue."""

from __future__ import annotations

import json

import pytest
from gym_runtime import Pending, Verdict
from gym_runtime.environment import Models, catalogue, examples
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.replaying import rejudge
from gym_testing.checks import contract, subject
from gym_view.commands.ls import describe_environment
from resources.judging import NEMO_GYM_ROWS, ROWS, nemo_gym_rows, row_files, usable
from tables import table

NAMES = catalogue.names("environments")
BLOCKED = "nothing blocks the event loop"
ISOLATED = {name: one for name in NAMES if (one := catalogue.environment(name).definition).isolated}
FIRST = {one.resource: name for name, one in reversed(ISOLATED.items())}
COPIES = {*ISOLATED} - {*FIRST.values()}
"""Environments with the isolated verifier of another one, such as those of mathematics: here, this process
judges them. Where long tests run, `tests/resources/test_recorded_rows.py` has each judge in a process of its
own."""
LONG = {"miniwob", "tales"}
"""A browser, or a Java, for each session, which takes minutes for all rows: here, they keep it on one.
`tests/resources/test_screens.py` and `test_tales.py` look at them, too."""
SLOW = {
    "bbh_aviary",
    "bigcodebench",
    "bixbench_aviary",
    "competitive_coding_challenges",
    "mini_swe_agent",
    "newton_bench",
    "ns_tools",
    "scicode",
    "swebench_verified",
    "swerl_gen",
}
"""A compiler, a notebook or a repository's tests for each row: they keep it on one row here, and on all where
long tests run."""
ROWS_RULE = "there are at least five example rows"


@table("name", NAMES)
def test_a_listing_says_what_it_is_and_the_licence_of_its_data(name: str) -> None:
    entry = describe_environment(name)
    assert entry.description
    assert entry.data_license


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.anyio
@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize(
    ("name", "count"),
    [
        *(pytest.param(name, 1, id=name) for name in sorted(SLOW)),
        *(pytest.param(name, None, id=name) for name in NAMES if name not in LONG | SLOW),
        *(pytest.param(name, None, marks=pytest.mark.long, id=f"{name}-all rows") for name in sorted(SLOW)),
        *(pytest.param(name, 1, marks=pytest.mark.soak, id=name) for name in sorted(LONG)),
    ],
)
async def test_an_environment_keeps_the_contract(
    name: str, count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = usable(name)
    if count is not None:
        rows = examples.read(environment)
        assert len(rows) >= contract.EXAMPLES

        def first(_: LoadedEnvironment) -> list[examples.Example]:
            return rows[:count]

        monkeypatch.setattr(examples, "read", first)
    if name in COPIES:
        monkeypatch.setattr(subject, "judge_recorded", judged_here)
    broken = await findings(environment, few=count is not None)
    if broken and all(finding.startswith(BLOCKED) for finding in broken):
        # What was imported once blocks no more, and another process may have had the processor.
        broken = await findings(environment, few=count is not None)
    assert not broken


async def judged_here(
    environment: LoadedEnvironment, row: bytes, response: bytes, models: Models
) -> Verdict | Pending:
    """As `judge_recorded` of an isolated environment, without its process."""
    verdict = await rejudge(environment.resource, row, response, models)
    return await environment.resource.review(row, response, verdict, models)


async def findings(environment: LoadedEnvironment, *, few: bool) -> list[str]:
    return [
        f"{finding.rule}: {finding.detail}"
        for finding in await contract.check(environment)
        if not finding.passed
        and not (few and finding.rule == ROWS_RULE)
        and not (environment.name in COPIES and finding.rule == BLOCKED)  # a process of its own may compute
    ]


@table("name", NAMES)
def test_rows_in_nemo_gyms_format_are_tasks(name: str) -> None:
    resource = catalogue.environment(name).resource
    for line in nemo_gym_rows(name):
        assert resource.task(line).responses_create_params is not None


@table("name", NAMES)
def test_our_rows_in_nemo_gyms_format_name_their_environment_by_agent_ref(name: str) -> None:
    for line in (ROWS / f"{name}.jsonl").read_bytes().splitlines():
        ref = json.loads(line)["agent_ref"]
        assert ref["type"] == "responses_api_agents"
        assert catalogue.resolve_agent_ref(ref["name"]) == name


def test_nemo_gyms_own_rows_are_read_as_well() -> None:
    if not NEMO_GYM_ROWS.is_dir():
        pytest.skip(f"{NEMO_GYM_ROWS} is missing: only the rows in {ROWS} were tested, not NeMo Gym's own")
    assert sum(len(row_files(name)) > 1 for name in NAMES) > 20
