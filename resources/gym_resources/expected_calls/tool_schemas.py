"""Functions described in Gorilla's types, as the tools that models are offered.

Source: how the Berkeley Function Calling Leaderboard offers functions to models that call tools
(``model_handler/utils.py``, github.com/ShishirPatil/gorilla, Apache-2.0); the code is our own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gym_resources.expected_calls.possible_answers import Language, plain_name

SYNTAX: dict[Language, str] = {"python": "Python 3", "java": "Java 8 SDK", "javascript": "JavaScript"}
NAMES: dict[Language, str] = {"java": "Java", "javascript": "JavaScript"}
FLOAT_HINT = " This is a float type value."
JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
SAME_TYPES = ("string", "integer", "number", "boolean", "array", "object")


def tool(function: Mapping[str, Any], language: Language = "python") -> dict[str, Any]:
    """A function as a tool: its name without dots, its types those of JSON schema.

    The parameters of a function in Java or JavaScript are texts, whose descriptions name their types.
    """
    parameters = function["parameters"]
    if language != "python":
        texts = {name: _literal(one, language) for name, one in parameters["properties"].items()}
        parameters = {**parameters, "properties": texts}
    hint = f" Note that the provided function is in {SYNTAX[language]} syntax."
    return {
        "type": "function",
        "name": plain_name(function["name"]),
        "description": function["description"] + hint,
        "parameters": {**json_schema(parameters), "type": "object"},
        "strict": False,
    }


def _literal(schema: Mapping[str, Any], language: Language) -> dict[str, Any]:
    """A parameter as a text in a language's syntax, in the authors' words."""
    name, kind = NAMES[language], schema["type"]
    left = dict(schema)
    said = f" This is {name} {kind} type parameter in string representation."
    if kind == "any":
        said = f" This parameter can be of any type of {name} object in string representation."
    if kind in ("ArrayList", "Array", "array"):
        items = left.pop("items")["type"]
        said += f" The list elements are of type {items}; they are not in string representation."
    if kind == "dict" and "properties" in left:
        said += (
            " The dictionary entries have the following schema; they are not in string representation. "
            + json.dumps(left.pop("properties"))
        )
    return {**left, "type": "string", "description": left.get("description", "") + said}


def json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with the types of JSON schema, at every depth.

    >>> json_schema({"type": "tuple", "items": {"type": "float"}})["items"]["format"]
    'float'
    """
    found, kind = dict(schema), schema.get("type", "any")
    if kind == "float":
        found["format"] = "float"
        found["description"] = schema.get("description", "") + FLOAT_HINT
    found["type"] = kind if kind in SAME_TYPES else JSON_TYPES.get(kind, "string")
    if "properties" in schema:
        found["properties"] = {name: json_schema(one) for name, one in schema["properties"].items()}
    if "items" in schema:
        found["items"] = json_schema(schema["items"])
    return found
