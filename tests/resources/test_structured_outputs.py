from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_resources.schema.strict import strict
from gym_runtime import Reply
from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.replay import rejudge
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import TaskError, UsageError

pytestmark = pytest.mark.anyio

ENVIRONMENT = catalogue.environment("structured_outputs")
SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "nemo_gym_examples" / "structured_outputs"
ROW: dict[str, Any] = {
    "responses_create_params": {"input": "?"},
    "schema_str": json.dumps(
        {"type": "object", "properties": {"city": {"type": "string"}, "people": {"type": "integer"}}}
    ),
    "schema_type": "json",
}
TOOL = {"response_mode": "tool_call", "tool_name": "hand_in", "tool_payload_key": "data"}
GOOD: dict[str, Any] = {"city": "Vell", "people": 3}


@pytest.fixture(autouse=True)
def packages() -> None:
    try:
        requirements.require(ENVIRONMENT)
    except UsageError as error:
        pytest.skip(error.message)


def call(arguments: Any, name: str = "hand_in") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": "1", "name": name, "arguments": text}


async def judge(*items: Any, **fields: Any) -> Verdict:
    return await rejudge(
        ENVIRONMENT.resource, msgspec.json.encode({**ROW, **fields}), bytes(Reply.of(*items).raw)
    )


@pytest.mark.parametrize(
    ("text", "reward", "problem"),
    [
        ('{"city": "Vell", "people": 3}', 1.0, None),
        (' \n{"city": "", "people": 0}\n', 1.0, None),
        ('{"city": "Vell"}', 0.0, "$: 'people' is a required property"),
        ('{"city": "Vell", "people": 3, "mayor": "Fenn"}', 0.0, "$: Additional properties"),
        ('{"city": "Vell", "people": "3"}', 0.0, "$.people: '3' is not of type 'integer'"),
        ('```json\n{"city": "Vell", "people": 3}\n```', 0.0, "not json: "),
        ("", 0.0, "not json: there is no text"),
        ("[]", 0.0, "$: [] is not of type 'object'"),
    ],
)
async def test_the_text_is_the_data(text: str, reward: float, problem: str | None) -> None:
    verdict = await judge(text)
    assert verdict.reward == reward
    assert verdict.fields["problem"] == problem or verdict.fields["problem"].startswith(problem)


@pytest.mark.parametrize(
    ("kind", "text", "reward"),
    [
        ("yaml", "city: Vell\npeople: 3", 1.0),
        ("yaml", "city: 1941-01-10\npeople: 3", 0.0),
        ("toml", 'city = "Vell"\npeople = 3', 1.0),
        ("xml", "<r><city>Vell</city><people>3</people></r>", 1.0),
        ("xml", "<r><city>Vell</city><people>three</people></r>", 0.0),
        ("csv", "city,people\nVell,3", 1.0),
        ("csv", "city\nVell", 0.0),
        ("json", "city: Vell\npeople: 3", 0.0),
    ],
)
async def test_every_format_is_read(kind: str, text: str, reward: float) -> None:
    assert (await judge(text, schema_type=kind)).reward == reward


@pytest.mark.parametrize(
    ("items", "fields", "reward"),
    [
        ([call({"data": GOOD})], {}, 1.0),
        (["Here you are.", call({"data": GOOD})], {}, 1.0),
        ([call({"data": GOOD, "other": None})], {}, 1.0),
        ([call({"data": GOOD, "other": GOOD})], {}, 0.0),
        ([call({"data": {"city": "Vell"}})], {}, 0.0),
        ([call(GOOD)], {}, 0.0),
        ([call(GOOD)], {"tool_payload_key": None}, 1.0),
        ([call({"data": GOOD})], {"tool_payload_key": None}, 0.0),
        ([call({"data": GOOD}, "other")], {}, 0.0),
        ([call({"data": GOOD}), call({"data": GOOD})], {}, 0.0),
        ([call({"data": GOOD}), call({}, "other")], {}, 0.0),
        ([call('{"data": ')], {}, 0.0),
        ([call([])], {}, 0.0),
        ([json.dumps(GOOD)], {}, 0.0),
        ([], {}, 0.0),
        ([call({"data": "city: Vell\npeople: 3"})], {"schema_type": "yaml"}, 1.0),
    ],
)
async def test_a_tool_call_hands_the_data_in(items: list[Any], fields: dict[str, Any], reward: float) -> None:
    assert (await judge(*items, **{**TOOL, **fields})).reward == reward


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schema_type": "ini"}, "Invalid enum value 'ini'"),
        ({"schema_str": "{"}, "neither JSON nor YAML of an object"),
        ({"schema_str": "[]"}, "neither JSON nor YAML of an object"),
        ({"schema_str": '{"type": "text"}'}, "schema_str is not a JSON schema"),
        ({"response_mode": "tool_call"}, "needs a 'tool_name'"),
        ({"response_mode": "speech"}, "Invalid enum value 'speech'"),
    ],
)
async def test_a_bad_row_is_refused_with_the_reason(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        await judge("{}", **fields)


def example(schema: dict[str, Any]) -> Any:
    """A value that meets a strict schema of the kind that its namesake's rows have."""
    kind = schema["type"][0] if isinstance(schema["type"], list) else schema["type"]
    if kind == "object":
        return {name: example(part) for name, part in schema["properties"].items()}
    if kind == "array":
        return [example(schema["items"])]
    simple = {"string": "text", "integer": 1, "number": 0.5, "boolean": True, "null": None}
    return schema.get("enum", [simple[kind]])[0]


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {toml(part)}' for name, part in value.items())}}}"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else json.dumps(value)


def written(value: Any, kind: str) -> str:
    if kind == "toml":
        return "\n".join(f"{name} = {toml(part)}" for name, part in value.items())
    if kind == "csv":
        cells = [json.dumps(part) if isinstance(part, list | dict) else str(part) for part in value.values()]
        return ",".join(value) + "\n" + ",".join(f'"{cell.replace(chr(34), 2 * chr(34))}"' for cell in cells)
    return json.dumps(value)


async def test_data_that_meet_the_schema_score_full_on_its_namesakes_rows() -> None:
    if not SHARED.exists():
        pytest.skip(f"no rows of NeMo Gym's 'structured_outputs' in {SHARED}")
    for path in sorted(SHARED.glob("*.jsonl")):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            row = json.loads(line)
            value = example(strict(json.loads(row["schema_str"])))
            item: Any = written(value, row["schema_type"])
            if row.get("response_mode") == "tool_call":
                key = row["tool_payload_key"]
                item = call({key: value} if key else value, row["tool_name"])
            verdict = await rejudge(ENVIRONMENT.resource, line, bytes(Reply.of(item).raw))
            assert verdict.reward == 1.0, f"{path}:{number}: {verdict.fields}"
