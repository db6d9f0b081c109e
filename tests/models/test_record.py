"""The `record` adapter: what it writes, and that `replay` gives it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from gym_models.record import Adapter
from gym_models.replay import Adapter as Replay
from gym_runtime.errors import ModelRefused, ModelUnavailable, UsageError
from gym_runtime.messages.calls import Control
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import TOOL, USER, context, model_call, output
from stubs.stub_engine import StubEngine
from tables import table

pytestmark = pytest.mark.anyio
SCRIPT = "record/scripted/tool-then-message"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "calls.jsonl"


def recording(path: Path, model: str = SCRIPT, **more: Any) -> Adapter:
    options = {"record": str(path), **more.pop("options", {})}
    return Adapter(ModelSettings.parse(model, options=options, **more))


def text(path: Path) -> str:
    return path.read_text()


def rewrite(path: Path, content: str) -> None:
    path.write_text(content)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text(path).splitlines()]


async def test_replay_gives_what_was_recorded(path: Path) -> None:
    async with recording(path) as adapter:
        first = await adapter.respond(model_call(tools=[TOOL], return_tokens=True), context())
        result = {"type": "function_call_output", "call_id": output(first)[0]["call_id"], "output": "cold"}
        second = await adapter.respond(model_call(USER, *output(first), result), context())
        async with Replay(ModelSettings.parse(f"replay/{path}")) as replay:  # while it is being written
            again = await replay.respond(model_call(return_tokens=True), context())
            assert output(again) == output(first)
            assert again.tokens == first.tokens
            again = await replay.respond(model_call(USER, *output(first), result), context())
            assert output(again) == output(second)


async def test_a_line_says_everything_of_a_call(path: Path) -> None:
    async with recording(path) as adapter:
        answer = await adapter.respond(
            model_call(temperature=0.5, return_tokens=True), context(rollout="run.2.3")
        )
    (line,) = lines(path)
    assert line["rollout_id"] == "run.2.3"
    assert line["responses_create_params"] == {"temperature": 0.5, "input": [USER]}
    assert line["output_items"] == output(answer)
    assert line["token_item_index"] == 0
    assert len(line["generation_token_ids"]) == len(line["generation_log_probs"]) > 0
    assert line["prompt_token_ids"][:3] == [0, 1, 2]
    assert line["usage"]["output_tokens"] == len(line["generation_token_ids"])
    assert line["error"] is None
    assert line["duration_s"] >= 0


async def test_an_error_is_a_line_too_and_replay_passes_it_over(path: Path, stub: StubEngine) -> None:
    async with recording(path, "record/openai/stub", urls=(stub.url,)) as adapter:
        with pytest.raises(ModelUnavailable):
            await adapter.respond(model_call(), context(x_stub_fault="503"))
        await adapter.respond(model_call(), context())
    broken, good = lines(path)
    assert broken["error"]["name"] == "ModelUnavailable"
    async with Replay(ModelSettings.parse(f"replay/{path}")) as replay:
        assert output(await replay.respond(model_call(), context())) == good["output_items"]


async def test_the_other_adapters_settings_hold_and_no_key_is_written(
    path: Path, stub: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    more = {"urls": (stub.url,), "api": "chat", "api_key_variable": "MY_KEY", "headers": {"x-pass": "sesame"}}
    async with recording(
        path, "record/openai/vendor/other", options={"reasoning": "drop"}, **more
    ) as adapter:
        await adapter.respond(model_call(), context(x_extra="hush"))
    (line,) = lines(path)
    assert line["model"] == "vendor/other"
    assert not [word for word in ("secret", "sesame", "hush") if word in text(path)]


async def test_what_a_crash_left_is_removed_and_the_file_goes_on(path: Path) -> None:
    async with recording(path) as adapter:
        await adapter.respond(model_call(), context())
    with path.open("a") as file:
        file.write('{"schema_version": 1, "mod')
    async with recording(path) as adapter:
        await adapter.respond(model_call(), context())
    assert len(lines(path)) == 2


async def test_two_write_one_file_and_the_second_repairs_nothing(path: Path) -> None:
    async with recording(path) as first:
        with path.open("a") as file:
            file.write("{")  # as if a line of the first were half-way there
        async with recording(path) as second:
            assert text(path) == "{"
            rewrite(path, "")

            async def many(adapter: Adapter) -> None:
                for _ in range(20):
                    await adapter.respond(model_call(), context())

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(many, first)
                tasks.start_soon(many, second)
    assert len({line["model_call_id"] for line in lines(path)}) == 40


async def test_a_cancelled_call_leaves_no_line(path: Path) -> None:
    async with recording(path, options={"latency_s": 60.0}) as adapter:
        with anyio.move_on_after(0.01):
            await adapter.respond(model_call(), context())
    assert lines(path) == []


async def test_weights_are_the_other_adapters_business(path: Path) -> None:
    async with recording(path) as adapter:
        answer = await adapter.control(Control(op="set_version", version="7"))
        assert answer.version == "7"
        await adapter.respond(model_call(), context())
    async with recording(path, f"record/replay/{path}") as adapter:
        with pytest.raises(ModelRefused, match="does not change weights"):
            await adapter.control(Control(op="state"))


@table(
    ("model", "options", "complaint"),
    [
        ("record/", {}, "record/PROVIDER/NAME"),
        ("record/scripted", {}, "record/PROVIDER/NAME"),
        ("record/skripted/echo", {}, "no model provider 'skripted'; did you mean 'scripted'"),
        ("record/nosuch/x", {}, "--model record/nosuch/x: there is no model provider 'nosuch'"),
        ("record/scripted/echo", {"record": 3}, "the path of a file, not 3"),
        ("record/scripted/echo", {"record": ""}, "the path of a file"),
        ("record/scripted/echo", {"txt": "x"}, "txt"),
    ],
)
async def test_settings(model: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        Adapter(ModelSettings.parse(model, options=options))


async def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot create"):
        await recording(tmp_path / "file" / "calls.jsonl").__aenter__()
    with pytest.raises(UsageError, match="is no regular file and is not written to"):
        await recording(tmp_path).__aenter__()
