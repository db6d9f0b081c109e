"""The tool packs: what they answer, and that no argument breaks or blocks them."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from gym_resources.packs import stateful_python
from gym_resources.web_search.outside import replays
from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.tools import SERVER_ERROR, ToolPacks, example, schema_problems, tools_of
from gym_runtime.errors import UsageError
from hostile.shapes import TEXTS
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop"), pytest.mark.slow]

PACKS = catalogue.names("tools")


@pytest.fixture
async def packs() -> AsyncGenerator[ToolPacks]:
    """All packs whose packages are installed, in one session."""
    taken = ToolPacks()
    for name in PACKS:
        pack = catalogue.tool_pack(name)
        try:
            requirements.require_pack(name, pack)
        except UsageError:
            continue
        taken.take(name, pack)
    yield taken
    await taken.close()


async def ask(packs: ToolPacks, tool: str, **arguments: Any) -> Any:
    if tool not in packs:
        pytest.skip(f"the package of {tool} is not installed")
    text = await packs.call(tool, json.dumps(arguments))
    return json.loads(text) if text.startswith(("{", "[")) else text


@table("name", PACKS)
def test_a_pack_describes_its_tools(name: str) -> None:
    for tool in tools_of(catalogue.tool_pack(name)).values():
        definition = tool.definition()
        assert definition["description"]
        assert not list(schema_problems(definition["parameters"]))


async def test_fluids(packs: ToolPacks) -> None:
    water = await ask(
        packs, "fluid-property", fluid="Water", output_property="D", temperature=300, pressure=101325
    )
    assert water["property"] == "density"
    assert water["value"] == pytest.approx(996.557, abs=0.01)
    assert "Water" in (await ask(packs, "fluid-list"))["fluids"]
    for fluid, wanted, kelvin, problem in (
        ("REFPROP::Water", "density", 300, "There is no fluid 'REFPROP::Water'"),
        ("Water&Ethanol", "density", 300, "There is no fluid"),
        ("Water", "colour", 300, "There is no property 'colour'"),
        ("Water", "density", 1e300, "density of Water at 1e\\+300 K"),
    ):
        answer = await ask(
            packs, "fluid-property", fluid=fluid, output_property=wanted, temperature=kelvin, pressure=1e5
        )
        assert isinstance(answer, str)
        assert problem.replace("\\", "") in answer


async def test_particles(packs: ToolPacks) -> None:
    for name in ("pi+", "211", "PI_PLUS"):
        assert (await ask(packs, "particle-lookup", name_or_id=name))["mass_mev"] == pytest.approx(
            139.57, abs=0.01
        )
    assert (await ask(packs, "particle-lookup", name_or_id="proton"))["quarks"] == "uud"
    found = await ask(packs, "particle-search", query="psi")
    assert found["found"] > 10
    assert len(found["particles"]) == 10
    assert "There is no particle" in await ask(packs, "particle-lookup", name_or_id="nothing")


async def test_elements(packs: ToolPacks) -> None:
    for name in ("Fe", "iron", " 26 "):
        assert (await ask(packs, "element-info", element=name))["mass_u"] == pytest.approx(55.845)
    iron = await ask(packs, "isotope-info", element="Fe", mass_number=56)
    assert iron["abundance_percent"] == pytest.approx(91.754)
    assert (await ask(packs, "isotope-info", element="U", mass_number=235))["abundance_percent"] is None
    assert "has no isotope 99" in await ask(packs, "isotope-info", element="Fe", mass_number=99)
    assert "There is no element" in await ask(packs, "element-info", element="Xx")


async def test_nuclides(packs: ToolPacks) -> None:
    uranium = await ask(packs, "nuclide-info", nuclide="238U")
    assert uranium["nuclide"] == "U-238"
    assert uranium["decays"][0]["to"] == "Th-234"
    assert (await ask(packs, "nuclide-info", nuclide="Fe-56"))["half_life_s"] is None
    half_s = (await ask(packs, "nuclide-info", nuclide="Tc-99m"))["half_life_s"]
    left = await ask(packs, "decay-chain", nuclide="Tc-99m", time=half_s)
    assert left["products"]["Tc-99m"]["moles"] == pytest.approx(0.5)
    assert "There is no nuclide" in await ask(packs, "nuclide-info", nuclide="Xx-1")


async def test_the_python_session_remembers_and_shows_what_it_is_asked(
    packs: ToolPacks, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def run(code: str) -> str:
        return await ask(packs, "stateful_python_code_exec", code=code)

    if "stateful_python_code_exec" in packs:
        await packs.call("stateful_python_code_exec", json.dumps({"code": "x = 6"}))
    assert await run("print('six')\n7 * x") == "six\n42"
    assert (await run("1 / 0")).endswith("ZeroDivisionError: division by zero")
    assert packs.timeouts == 0
    with monkeypatch.context() as quick:
        quick.setattr(stateful_python, "LIMIT_S", 0.3)
        assert "TimeoutError" in await run("while True: pass")
    assert packs.timeouts == 1
    assert await run("x") == "6"


async def test_calls_of_one_python_session_wait_for_each_other(packs: ToolPacks) -> None:
    answers: list[str] = []

    async def count() -> None:
        answers.append(await ask(packs, "stateful_python_code_exec", code="n = globals().get('n', 0) + 1\nn"))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(count)
    assert sorted(answers) == ["1", "2", "3", "4"]


def test_a_replay_that_is_misspelt_asks_nothing_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_REPLAY", "true")
    with pytest.raises(UsageError, match="GYM_REPLAY=true: it must be 1, or 0 to ask outside"):
        replays()


@pytest.mark.timeout(120)
async def test_no_argument_breaks_or_blocks_a_tool(
    packs: ToolPacks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recording = tmp_path / "empty.jsonl"
    recording.touch()
    monkeypatch.setenv("GYM_RECORDING", str(recording))
    monkeypatch.setenv("GYM_REPLAY", "1")
    shapes = ("digits", "one word", "NUL and control characters", "deep JSON")
    texts = [TEXTS[shape](1_000_000) for shape in shapes]
    for tool in [tool for tool in packs.tools if tool != "stateful_python_code_exec"]:
        parameters = packs.tools[tool].definition()["parameters"]
        usual = example(parameters)
        await packs.call(tool, json.dumps(usual))  # what is imported once
        for parameter, text in itertools.product(parameters["properties"], texts):
            arguments = json.dumps({**usual, parameter: text})
            started_s = time.thread_time()
            answer = await packs.call(tool, arguments)
            assert answer != SERVER_ERROR
            assert len(answer) < 10_000
            assert time.thread_time() - started_s < 0.05
