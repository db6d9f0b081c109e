from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from gym_resources.schema.strict import strict
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import rejudge
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import TaskError
from resources.judging import row_files, usable

from resources import judging

pytestmark = pytest.mark.anyio

ENVIRONMENT = catalogue.environment("structured_outputs")
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
    usable(ENVIRONMENT.name)


def call(arguments: Any, name: str = "hand_in") -> dict[str, Any]:
    return judging.call(name, arguments)


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
        ("xml", "<r><city>Vell</city><people>3</people></r>", 0.0),  # the schema has no property "r"
        ("csv", "city,people\nVell,3", 0.0),  # a list, and the schema is an object's
        ("json", "city: Vell\npeople: 3", 0.0),
    ],
)
async def test_every_format_is_read(kind: str, text: str, reward: float) -> None:
    assert (await judge(text, schema_type=kind)).reward == reward


@pytest.mark.parametrize(
    ("kind", "text", "reward"),
    [
        ("xml", "<r><city>Vell</city><people>3</people></r>", 1.0),
        ("xml", "<r><city>Vell</city><people>three</people></r>", 0.0),
        ("xml", "<s><city>Vell</city><people>3</people></s>", 0.0),
        ("csv", "city,people\nVell,3\nNorr,4", 1.0),
        ("csv", "city\nVell", 0.0),
    ],
)
async def test_xml_has_its_root_and_csv_is_a_list(kind: str, text: str, reward: float) -> None:
    schema: dict[str, Any] = json.loads(ROW["schema_str"])
    rooted = {"type": "object", "properties": {"r": schema}}
    around = rooted if kind == "xml" else {"type": "array", "items": schema}
    assert (await judge(text, schema_type=kind, schema_str=json.dumps(around))).reward == reward


async def test_all_messages_are_the_data() -> None:
    assert (await judge('{"city": "Vell",', ' "people": 3}')).reward == 1.0
    assert (await judge("Here it is:", json.dumps(GOOD))).reward == 0.0
    assert (await judge(json.dumps(GOOD), call({}))).reward == 1.0


async def test_branches_of_any_of_are_as_lax_as_they_are_written() -> None:
    loose = {"type": "object", "properties": {"a": {"type": "integer"}}}
    branched = json.dumps({"type": "object", "properties": {"x": {"anyOf": [loose, {"type": "null"}]}}})
    for text, reward in (
        ('{"x": {}}', 1.0),
        ('{"x": {"b": 1}}', 1.0),
        ('{"x": {"a": ""}}', 0.0),
        ("{}", 0.0),
    ):
        assert (await judge(text, schema_str=branched)).reward == reward, text


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("yaml", "city: 0x" + "f" * 100_000 + "\npeople: 1", r"\$: cannot be validated: Exceeds the limit"),
        # PyYAML's own reader refuses this depth, too, from 6.0.4 on.
        ("yaml", "[" * 30_000, "not yaml: (it is nested too deeply|.*exceeded maximum nesting depth)"),
        (
            "json",
            '{"city": "", "people": 1, "\\ud800": 2}',
            r"\$: Additional properties are not allowed \('\\ud800' was unexpected\)",
        ),
        ("json", "[" * 100_000, "not json within reason"),
        ("json", "9" * 100_000, "not json: Exceeds the limit"),
    ],
)
async def test_what_cannot_be_handled_is_worth_nothing(kind: str, text: str, problem: str) -> None:
    verdict = await judge(text, schema_type=kind)
    assert verdict.reward == 0.0
    assert re.match(problem, verdict.fields["problem"], re.DOTALL)


@pytest.mark.parametrize(
    ("items", "fields", "reward"),
    [
        ([call({"data": GOOD})], {}, 1.0),
        (["Here you are.", call({"data": GOOD})], {}, 1.0),
        ([call({"data": GOOD, "other": None})], {}, 1.0),
        ([call({"data": GOOD, "other": GOOD})], {}, 1.0),
        ([call({"data": GOOD}), call({"data": GOOD})], {"tool_name": None}, 0.0),
        ([call({"data": GOOD}, "any")], {"tool_name": None}, 1.0),
        ([call({"data": json.dumps(GOOD)})], {}, 0.0),  # a text stays a text
        ([call(json.dumps(json.dumps(GOOD)))], {"tool_payload_key": None}, 0.0),
        ([call({"data": None})], {}, 0.0),
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
        ([call({"data": "city: Vell\npeople: 3"})], {"schema_type": "yaml"}, 0.0),
        ([call({"data": GOOD})], {"schema_type": "xml"}, 1.0),
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
        ({"schema_str": '{"items": {"type": "text"}}'}, r"schema_str is not a JSON schema: \$.items"),
        ({"response_mode": "speech"}, "Invalid enum value 'speech'"),
    ],
)
def test_a_bad_row_is_refused_before_anything_is_asked(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        ENVIRONMENT.resource.task(msgspec.json.encode({**ROW, **fields}))


async def test_a_schema_that_refers_to_nothing_is_refused() -> None:
    with pytest.raises(TaskError, match="schema_str is not a JSON schema"):
        await judge("{}", schema_str='{"$ref": "#/$defs/none"}')


def example(schema: dict[str, Any]) -> Any:
    """A value that meets a strict schema of the kind that rows in NeMo Gym's format have."""
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
        return ",".join(value) + "\n" + ",".join(f'"{part}"' for part in value.values())
    return json.dumps(value)


async def test_data_that_meet_the_schema_score_full_on_rows_in_nemo_gyms_format() -> None:
    for path in row_files("structured_outputs"):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            row = json.loads(line)
            value = example(strict(json.loads(row["schema_str"])))
            item: Any = written(value, row["schema_type"])
            if row.get("response_mode") == "tool_call":
                key = row["tool_payload_key"]
                item = call({key: value} if key else value, row["tool_name"])
            verdict = await rejudge(ENVIRONMENT.resource, line, bytes(Reply.of(item).raw))
            # Their row in CSV cannot be won: its schema is an object's, with lists in it.
            assert verdict.reward == float(row["schema_type"] != "csv"), f"{path}:{number}: {verdict.fields}"


@pytest.mark.parametrize(
    ("text", "reward", "strictly"), [("city\nVell", 1, 1), ("true", 1, 0), ("a,b", 1, 0)]
)
async def test_the_strict_rule_wants_a_record_of_csv(text: str, reward: float, strictly: float) -> None:
    schema = json.dumps(
        {"type": "array", "items": {"type": "object", "properties": {"city": {"type": "string"}}}}
    )
    for set_strict, wanted in ((False, reward), (True, strictly)):
        verdict = await judge(text, schema_str=schema, schema_type="csv", strict=set_strict)
        assert verdict.reward == wanted
