"""Rules of the environments whose answer is calls of tools."""

from __future__ import annotations

import json
from typing import Any

from resources.fidelity.rules import Item, Rule, Worth, made, refusal, said, thought

STEPPED = "single_step_tool_use_with_argument_comparison"
Case = tuple[Item | list[Item], Worth]


def xlam(says: str, *cases: Case, expected: list[dict[str, Any]]) -> Rule:
    return Rule(environment="xlam_fc", says=says, task={"expected_answers": expected}, cases=cases)


XLAM = [
    xlam(
        "expected arguments may be JSON text",
        ([made("book", {"seats": 2, "row": "F"})], 1.0),
        ([made("book", {"seats": "2"})], 0.0),
        expected=[{"name": "book", "arguments": '{"seats": 2}'}],
    ),
    xlam(
        "arguments that are not JSON count as {}: a match if nothing is expected",
        ([made("stop", "now!")], 1.0),
        ([made("stop", "")], 1.0),
        expected=[{"name": "stop", "arguments": {}}],
    ),
    xlam(
        "arguments that are not JSON match nothing else",
        ([made("book", '{"seats": 2')], 0.0),
        expected=[{"name": "book", "arguments": {"seats": 2}}],
    ),
]


def call(name: str, arguments: object) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments)}


def batch(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function_call_batch", "calls": list(calls)}


def stepped(says: str, action: dict[str, Any], *cases: Case, **fields: Any) -> Rule:
    return Rule(environment=STEPPED, says=says, task={"expected_action": action, **fields}, cases=cases)


MESSAGE = {"type": "message", "role": "assistant", "content": "Done."}
PARALLEL: dict[str, Any] = {
    "parallel_tool_call_rewarding": True,
    "parallel_tool_call_reward_mode": "f1",
    "allow_subset": True,
    "allow_superset": True,
}
A, B, C = (made("open", {"door": door}) for door in ("a", "b", "c"))
STEPPED_RULES = [
    stepped(
        "by default a batch is right if every expected call finds its own partner; surplus calls are free",
        batch(call("open", {"door": "a"}), call("open", {"door": "b"})),
        ([B, A], 1.0),
        ([A, C, B, C], 1.0),
        ([A, A], 0.0),
        ([A], 0.0),
    ),
    stepped(
        "by default one expected call may have others beside it", call("open", {"door": "a"}), ([C, A], 1.0)
    ),
    stepped(
        "with the parallel configuration counts matter also for one expected call",
        call("open", {"door": "a"}),
        ([A], 1.0),
        ([C], 0.0),
        ([A, C], 2 / 3),
        ([], 0.0),
        **PARALLEL,
    ),
    stepped(
        "the parallel mode f1 is twice the pairs over all calls",
        batch(call("open", {"door": "a"}), call("open", {"door": "b"})),
        ([A, B], 1.0),
        ([A], 2 / 3),
        ([A, B, C, C], 4 / 6),
        ([C, C], 0.0),
        **PARALLEL,
    ),
    stepped(
        "with counts, more calls than expected are worth 0 unless a superset is allowed",
        call("open", {"door": "a"}),
        ([A, C], 0.0),
        **{**PARALLEL, "allow_superset": False},
    ),
    stepped(
        "with counts, fewer calls than expected are worth 0 unless a subset is allowed",
        batch(call("open", {"door": "a"}), call("open", {"door": "b"})),
        ([A], 0.0),
        **{**PARALLEL, "allow_subset": False},
    ),
    stepped(
        "no action at all is worth 0 also where a message was expected; a refusal is no message",
        MESSAGE,
        ("Anything.", 1.0),
        ("", 1.0),
        ([], 0.0),
        ([thought("hm")], 0.0),
        ([refusal()], 0.0),
        (["Well.", A], 0.0),
    ),
    stepped(
        "true and false pass for expected integers of equal value",
        call("set", {"on": 1, "off": 0}),
        ([made("set", {"on": True, "off": False})], 1.0),
        ([made("set", {"on": 1.0, "off": 0})], 0.0),
    ),
    stepped(
        "integers do not pass for expected booleans",
        call("set", {"on": True}),
        ([made("set", {"on": 1})], 0.0),
        ([made("set", {"on": True})], 1.0),
    ),
    stepped(
        "floats need floats, within less than a millionth",
        call("set", {"level": 0.5}),
        ([made("set", {"level": 0.5000009})], 1.0),
        ([made("set", {"level": 0.500001})], 0.0),
    ),
    stepped("an integer is no float", call("set", {"level": 2.0}), ([made("set", {"level": 2})], 0.0)),
    stepped(
        "texts of two words or more are compared by the words they share over all words, threshold included",
        call("find", {"query": "cheap flight to Oslo"}),
        ([made("find", {"query": "Oslo cheap flight TO"})], 1.0),
        ([made("find", {"query": "x y z oslo"})], 1.0),  # 1 of 8
        ([made("find", {"query": "oslo"})], 0.0),
        word_count_similarity_threshold=0.125,
    ),
    stepped(
        "texts that share less than the threshold differ, each word as often as both have it",
        call("find", {"query": "a a b b"}),
        ([made("find", {"query": "a a c c"})], 1.0),  # 2 of 8
        ([made("find", {"query": "a c c a c c"})], 0.0),  # 2 of 10
        word_count_similarity_threshold=0.25,
    ),
    stepped(
        "texts of one word must be identical",
        call("find", {"query": "Oslo"}),
        ([made("find", {"query": "oslo"})], 0.0),
        ([made("find", {"query": "Oslo"})], 1.0),
        word_count_similarity_threshold=0.0,
    ),
]


def multireward(says: str, *cases: Case, expected: object = None, **fields: Any) -> Rule:
    tool = {
        "type": "function",
        "name": "pay",
        "parameters": {"type": "object", "properties": {}, "required": ["to", "sum"]},
    }
    task = {"responses_create_params": {"input": "go", "tools": [tool]}, **fields}
    if expected:
        task["expected_call"] = expected
    return Rule(environment="example_tool_call_multireward", says=says, task=task, cases=cases)


def parts(correctness: float, schema_valid: float, form: float) -> dict[str, float]:
    return {"correctness": correctness, "schema_valid": schema_valid, "format": form}


PAY = {"name": "pay", "arguments": {"sum": 5, "to": {"name": "Ann"}}}
MULTIREWARD = [
    multireward(
        "correctness: some call of the name contains all the expected arguments",
        ([made("pay", {"sum": 5, "to": {"name": "Ann"}, "note": ""})], parts(1, 1, 1)),
        ([made("pay", {"sum": 5})], parts(0, 0, 1)),
        ([made("pay", {"sum": 6, "to": 1}), made("pay", PAY["arguments"])], parts(1, 1, 0)),
        ([made("refund", PAY["arguments"])], parts(0, 1, 1)),
        expected=PAY,
    ),
    multireward(
        "without an expected_call correctness is 0", ([made("pay", {"sum": 5, "to": 1})], parts(0, 1, 1))
    ),
    multireward(
        "schema_valid: the first call has all that its tool requires; an unknown tool requires nothing",
        ([made("pay", {"sum": None, "to": None})], parts(0, 1, 1)),
        ([made("pay", {"sum": 1}), made("pay", {"sum": 1, "to": 1})], parts(0, 0, 0)),
        ([made("fly", {})], parts(0, 1, 1)),
        ([made("fly", "[]")], parts(0, 0, 1)),
        ([made("fly", "x")], parts(0, 0, 1)),
        ([], parts(0, 0, 0)),
        expected=PAY,
    ),
    multireward(
        "format: exactly one call and no message at all, even an empty one",
        ([thought("hm"), made("fly", {})], parts(0, 1, 1)),
        ([made("fly", {}), ""], parts(0, 1, 0)),
        ([said(), made("fly", {})], parts(0, 1, 0)),
        expected=PAY,
    ),
]
RULES = [*XLAM, *STEPPED_RULES, *MULTIREWARD]
