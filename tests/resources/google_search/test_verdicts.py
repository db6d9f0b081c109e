"""The letter in the box decides, and judging again asks no service."""

from __future__ import annotations

import json

import msgspec
import pytest
from gym_testing.checks.reverification import Reverifier
from resources.google_search.searches import task
from resources.judging import call, judge, output
from resources.web import World
from tables import table

pytest.importorskip("trafilatura", reason="needs pip install 'gym-runtime[search]'")
pytestmark = pytest.mark.anyio


@table(
    ("said", "option", "reward"),
    [
        (r"It is \boxed{B}.", "B", 1.0),
        (r"\boxed{{B}}", "B", 1.0),
        (r"\boxed{ \text{B} }", "B", 1.0),
        (r"\boxed{B}, not \boxed{C}", "B", 1.0),
        (r"\boxed{C}, not \boxed{B}", "C", 0.0),
        (r"\boxed{b}", "b", 0.0),
        (r"\boxed{B", None, 0.0),
        ("B", None, 0.0),
        ("", None, 0.0),
    ],
)
async def test_the_letter_in_the_box(said: str, option: str | None, reward: float) -> None:
    verdict = await judge("google_search", task(search_backend="replay"), said)
    assert (verdict.reward, verdict.fields) == (reward, {"parsed_option": option})


async def test_the_last_item_must_be_the_message() -> None:
    verdict = await judge(
        "google_search", task(search_backend="replay"), r"\boxed{B}", call("search", {"query": "x"})
    )
    assert verdict.reward == 0.0


@pytest.mark.parametrize("environment", ["google_search", "tavily_search"])
async def test_judging_again_wants_no_key(environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_API_KEY", "GOOGLE_CX", "TAVILY_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    asked = {"question": "Which?", "ground_truth": "B", "use_judge": False}
    stored = json.loads(task(**asked)) | {
        "response": {"output": [{"type": "message", "role": "assistant", "content": r"Answer: \boxed{B}"}]},
        "reward": 0.0,
        "agent_ref": {"name": f"{environment}_simple_agent"},
    }
    judged = await Reverifier().judge(msgspec.json.encode(stored))
    assert json.loads(bytes(judged.row))["reward"] == float(environment == "google_search")


async def test_judging_again_asks_no_service(out: World) -> None:
    response = {
        "output": [
            call("search", {"query": "x"}),
            output("{}"),
            {"type": "message", "role": "assistant", "content": r"\boxed{B}"},
        ]
    }
    stored = json.loads(task()) | {
        "response": response,
        "reward": 0.0,
        "agent_ref": {"name": "google_search_simple_agent"},
    }
    judged = await Reverifier().judge(msgspec.json.encode(stored))
    assert judged.reward == 1.0
    assert out.asked == []
