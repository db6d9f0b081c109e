"""Data in a given format that fit a JSON schema: as the text of the answer, or as a tool call's arguments.

The schema is made strict first: every object has all the properties it names, and no others (but not within
lists of schemas such as ``anyOf``). The reward is 1 if the data are well-formed and valid, else 0;
``problem`` and ``error_message`` say why, and ``error_type`` is ``parse_error`` or ``schema_error``. Whether
the values are true is not judged.

``response_mode`` text (the default): the texts of all the model's messages, joined, are the data in the
row's ``schema_type``: json, yaml, xml, toml or csv; fences around them make them malformed.
``response_mode`` tool_call: the model makes exactly one call, of the tool ``tool_name`` if there is one. The
data are its arguments, or what they hold under ``tool_payload_key``, other fields beside it do not matter; a
string is never parsed further, whatever the format. Nothing is executed.

XML and CSV have no types, so texts are converted to the schema's types. An XML document is an object
with its root as the only key, CSV a list of records, TOML a table; a schema of another shape is never met.
Any line is the first one of a CSV without records, so any short text is paid where the schema does not ask
for one (1 of the 5 example rows). With ``strict``, which NeMo Gym lacks, a CSV has a record.

Rows of v1, v3 and v4 and rewards are those of NeMo Gym's environment of this name. Two things differ: a row
whose schema is invalid, which no answer can satisfy, is refused; and a record of CSV with too few or too many
cells, or a YAML or TOML document that would crash or block the parser, is worth 0.
Source: the rule of NeMo Gym's namesake; the rows are our own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, cast

from gym_runtime import Environment, Reply, Task, TaskError, Verdict, published

from gym_resources.schema.formats import Format, Malformed, read
from gym_resources.schema.strict import misformed, strict, violation

FIELDS = ("problem", "error_type", "error_message")


class StructuredTask(Task):
    schema_str: str
    schema_type: Format
    response_mode: Literal["text", "tool_call"] | None = None
    tool_name: str | None = None
    tool_payload_key: str | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        strict_schema(self.schema_str)


@lru_cache(maxsize=128)
def strict_schema(schema_str: str) -> dict[str, Any]:
    """A row's schema, made strict; it may be written in YAML as well.

    Raises:
        ValueError: the text is not a JSON schema.
    """
    for kind in ("json", "yaml"):
        try:
            schema = read(schema_str, kind, {})
        except Malformed:
            continue
        if isinstance(schema, dict):
            made = strict(cast("dict[str, Any]", schema))
            if problem := misformed(made):
                raise ValueError(f"schema_str is not a JSON schema: {problem}")
            return made
    raise ValueError(f"schema_str is neither JSON nor YAML of an object: {schema_str:.100}")


async def verify(task: StructuredTask, reply: Reply) -> Verdict:
    schema = strict_schema(task.schema_str)
    try:
        if task.response_mode == "tool_call":
            value = payload(task, reply)
        else:
            value = read(reply.joined_text, task.schema_type, schema)
    except Malformed as error:
        return failed("parse_error", str(error))
    if task.strict and task.schema_type == "csv" and value == []:
        return failed("schema_error", "the CSV has no records")
    try:
        problem = violation(value, schema)
    except ValueError as error:
        raise TaskError(f"schema_str is not a JSON schema: {error}") from error
    return Verdict(1.0, fields=dict.fromkeys(FIELDS)) if problem is None else failed("schema_error", problem)


def failed(kind: str, problem: str) -> Verdict:
    """The verdict on malformed data (``parse_error``), or data that violate the schema (``schema_error``)."""
    said = printable(problem)
    return Verdict(0.0, fields=dict(zip(FIELDS, (said, kind, said), strict=True)))


def payload(task: StructuredTask, reply: Reply) -> Any:
    """The data that the tool call hands in.

    Raises:
        Malformed: the call with the data is missing.
    """
    calls = reply.function_calls
    if len(calls) != 1 or task.tool_name not in (None, calls[0].name):
        names = ", ".join(call.name for call in calls[:5]) or "none"
        raise Malformed(f"calls: {names:.200}; wanted: one of {task.tool_name or 'any tool'}")
    value, key = read(calls[0].arguments, "json", {}), task.tool_payload_key
    if key is None:
        return value
    if not isinstance(value, dict) or key not in value:
        raise Malformed(f"the arguments have no {key}")
    return cast("dict[str, Any]", value)[key]


def printable(problem: str) -> str:
    """The text with a question mark for each lone surrogate, which a result row cannot hold."""
    return problem.encode("utf-8", "replace").decode()


environment = Environment(
    resource=verify,
    description="Data in JSON, YAML, XML, TOML or CSV, or in a tool call, that meet a strict schema.",
    domain="instruction_following",
    reads_input=False,
    agent="single_turn",
    isolated=True,
    shares_process=True,
    imports=("jsonschema", "yaml", "xmltodict"),
    extra="structured-outputs",
    datasets=published(
        "nvidia/Nemotron-RL-instruction_following-structured_outputs",
        "Apache-2.0",
        train="structured_outputs_251027_nano_v3_sdg_json_train.jsonl",
        validation="structured_outputs_251027_nano_v3_sdg_json_val.jsonl",
    ),
)
