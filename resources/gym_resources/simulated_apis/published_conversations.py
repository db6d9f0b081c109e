"""The conversations of the Berkeley Function Calling Leaderboard, as rows.

Source: github.com/ShishirPatil/gorilla (Apache-2.0), the files within the package bfcl-eval.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec

from gym_resources.expected_calls.tool_schemas import tool
from gym_resources.simulated_apis.played_calls import ApiCall

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
DATA = "bfcl_eval/data"
DOCS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
FILES = (
    *(f"{DATA}/BFCL_v4_multi_turn_{name}.json" for name in CATEGORIES),
    *(f"{DATA}/possible_answer/BFCL_v4_multi_turn_{name}.json" for name in CATEGORIES),
    *(f"{DATA}/multi_turn_func_doc/{name}.json" for name in DOCS.values()),
)


def rows(*files: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row for each conversation of each category."""
    count = len(CATEGORIES)
    docs = {name: list(file) for name, file in zip(DOCS, files[2 * count :], strict=True)}
    for category, questions, answers in zip(CATEGORIES, files, files[count : 2 * count], strict=False):
        expected = {one["id"]: one["ground_truth"] for one in answers}
        for one in questions:
            held_back = {turn: list(names) for turn, names in one.get("missed_function", {}).items()}
            hidden = set(chain(*held_back.values()))
            offered = [doc for name in one["involved_classes"] for doc in docs[name]]
            yield {
                "responses_create_params": {
                    "input": one["question"][0],
                    "tools": [tool(doc) for doc in offered if doc["name"] not in hidden],
                },
                "id": one["id"],
                "category": category,
                "scenario": {
                    "classes": one["involved_classes"],
                    "config": one["initial_config"],
                    "long_context": category == "long_context",
                },
                "turns": one["question"][1:],
                "added_tools": {
                    turn: [tool(doc) for doc in offered if doc["name"] in names]
                    for turn, names in held_back.items()
                },
                "expected": [
                    [msgspec.to_builtins(read(call)) for call in turn] for turn in expected[one["id"]]
                ],
            }


def read(text: str) -> ApiCall:
    """A published call, such as ``cd(folder='a')``; only literals are read, and nothing is evaluated.

    Raises:
        ValueError: it is something else.

    >>> read("sort('a.txt', reverse=True)")
    ApiCall(name='sort', keywords={'reverse': True}, positional=['a.txt'])
    """
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"{text:.200} is no call of a function")
    keywords = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    return ApiCall(call.func.id, keywords, [ast.literal_eval(one) for one in call.args])
