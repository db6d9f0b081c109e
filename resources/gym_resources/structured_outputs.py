"""Data in a given format that meet a JSON schema: as the text of the answer, or as a tool call's arguments.

The schema is made strict first: every object has all the properties it names, and no others. The reward is 1
if the data are well-formed and valid, else 0, and ``problem`` says why; whether they are true is not judged.

``response_mode`` text (the default): the last message, as a whole, is the data in the row's ``schema_type``:
json, yaml, xml, toml or csv; fences around them make them malformed.
``response_mode`` tool_call: the model makes exactly one call, of the tool ``tool_name``. The data are its
arguments, or what they hold under ``tool_payload_key`` and nothing beside it but nulls; nothing is executed.

XML and CSV have no types, so texts become what the schema wants in their place. In XML the root and
elements that only hold a list are names; in CSV a cell that should be a list or an object is JSON, or a list
with ``;`` or ``|`` between, and a schema of an object means one record.

Rows of v1, v3 and v4 and rewards as of NeMo Gym's environment of this name. Unlike there, a row whose schema
is none is refused. Source: the rule of NeMo Gym's namesake; the rows are our own.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.environment.environment import published
from gym_runtime.errors import TaskError

from gym_resources.schema.formats import Format, Malformed, read
from gym_resources.schema.strict import strict, violation


class StructuredTask(Task):
    schema_str: str
    schema_type: Format
    response_mode: Literal["text", "tool_call"] | None = None
    tool_name: str | None = None
    tool_payload_key: str | None = None

    def __post_init__(self) -> None:
        if self.response_mode == "tool_call" and not self.tool_name:
            raise ValueError("a row with response_mode 'tool_call' needs a 'tool_name'")

    def schema(self) -> dict[str, Any]:
        """The schema, made strict; it may be written in YAML as well.

        Raises:
            TaskError: it cannot be read.
        """
        for kind in ("json", "yaml"):
            try:
                schema = read(self.schema_str, kind, {})
            except Malformed:
                continue
            if isinstance(schema, dict):
                return strict(cast("dict[str, Any]", schema))
        raise TaskError(f"schema_str is neither JSON nor YAML of an object: {self.schema_str:.100}")


async def verify(task: StructuredTask, reply: Reply) -> Verdict:
    schema = task.schema()
    try:
        if task.response_mode == "tool_call":
            value = payload(task, reply, schema)
        else:
            value = read(reply.text, task.schema_type, schema)
    except Malformed as error:
        return Verdict(0.0, fields={"problem": str(error)})
    try:
        problem = violation(value, schema)
    except ValueError as error:
        raise TaskError(f"schema_str is not a JSON schema: {error}") from error
    return Verdict(float(problem is None), fields={"problem": problem})


def payload(task: StructuredTask, reply: Reply, schema: dict[str, Any]) -> Any:
    """The data that the tool call hands in.

    Raises:
        Malformed: there are none.
    """
    calls = reply.function_calls
    if len(calls) != 1 or calls[0].name != task.tool_name:
        names = ", ".join(call.name for call in calls[:5]) or "none"
        raise Malformed(f"calls: {names}; wanted: one of {task.tool_name}")
    value = read(calls[0].arguments, "json", schema)
    if task.tool_payload_key is not None:
        arguments = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        given = [key for key, part in arguments.items() if part is not None]
        if given != [task.tool_payload_key]:
            raise Malformed(
                f"the arguments hold {', '.join(given[:5]) or 'nothing'}; wanted: {task.tool_payload_key}"
            )
        value = arguments[task.tool_payload_key]
    if isinstance(value, str) and task.schema_type != "json":
        return read(value, task.schema_type, schema)
    return value


environment = Environment(
    resource=verify,
    description="Data in JSON, YAML, XML, TOML or CSV, or in a tool call, that meet a strict schema.",
    domain="instruction_following",
    agent="single_turn",
    heavy=True,
    imports=("jsonschema", "yaml", "xmltodict"),
    extra="structured-outputs",
    datasets=published(
        "nvidia/Nemotron-RL-instruction_following-structured_outputs",
        "Apache-2.0",
        train="structured_outputs_251027_nano_v3_sdg_json_train.jsonl",
        validation="structured_outputs_251027_nano_v3_sdg_json_val.jsonl",
    ),
)
