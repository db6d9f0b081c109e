"""What reaches a model in a role of the control tokens in a text that another model wrote."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from gym_runtime import Role, Session, Task
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.role_prompts import harmless
from gym_runtime.environment.roles import ScriptedAnswers
from msgspec import Raw
from tables import table

TOKENS = [
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_sep|>", "<|im_middle|>"),
    *("<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>", "<|header_start|>", "<|eot|>"),
    *("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|user|>"),
    *("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>", "<BOS_TOKEN>", "<|start_of_role|>"),
    *(
        "<｜begin▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<｜end▁of▁sentence｜>",
        "<｜tool▁calls▁begin｜>",
    ),
    *("<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<|turn>", "<turn|>", "<channel|>"),
    *("<s>", "</s>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[AVAILABLE_TOOLS]", "[gMASK]", "<sop>"),
    *(
        "<SPECIAL_11>",
        "<extra_id_0>",
        "<reserved_102>",
        "<seed:bos>",
        "[|assistant|]",
        "]~b]",
        "]~!b[",
        "[e~[",
    ),
]
SHAPES = [
    *("<", "<|", "<a", "<a|>", "<s>", "</s>", "</s", "<<SYS", "<<", "<｜", "<|im_end|>", "<" + "a" * 64),
    *(
        "[",
        "[|",
        "[|" + "a" * 64,
        "[/INST",
        "[INST]",
        "[e~[",
        "]",
        "]~b",
        "]~b]",
        "<reserved_1234",
        "\\",
        '"',
    ),
]


@table("token", TOKENS)
def test_a_space_breaks_each_token_also_where_they_overlap(token: str) -> None:
    broken = f"{token[0]} {token[1:]}"
    assert harmless(f"a{token}b") == f"a{broken}b"
    for text in (token * 3, f"<{token}>", f"[{token}]", f"<|{token}", token + token[1:], f"<s{token}"):
        told = harmless(text)
        assert not any(one in told for one in TOKENS)
        assert harmless(told) == told


@pytest.mark.parametrize(
    "text",
    [
        "a < b and c > d, x[i], f <| x |> g, (<|>), <b>bold</b>, <br/>, [A], [[A=B]], [[A!=B]]",
        "<quoted>\nx\n</quoted>, <think>no</think>, <tool_call>{}</tool_call>, [args...] [OPTIONS]",
        "SELECT a || b FROM t; x | y, |x|, a<|, |>, [|1, 2|], ]~, <final_law>, <score>7</score>",
    ],
)
def test_a_harmless_text_stays_as_it_is(text: str) -> None:
    assert harmless(text) == text


@table("shape", SHAPES)
@pytest.mark.slow
def test_a_megabyte_of_any_shape_takes_a_moment(shape: str) -> None:
    text = shape * (1_000_000 // len(shape))
    started_s = time.process_time()
    harmless(text)
    assert time.process_time() - started_s < 0.5  # 0.05 s on a free core


@pytest.mark.anyio
@table("token", TOKENS)
async def test_no_part_of_what_a_role_is_told_holds_a_token(token: str) -> None:
    escaped = Raw(b'"' + "".join(f"\\u{ord(character):04x}" for character in token).encode() + b'"')
    scripted = ScriptedAnswers({"judge": ["a", "b", "c"]})
    judge = scripted.models([Role(name="judge")]).judge
    broken = f"{token[0]} {token[1:]}"
    await judge.ask(f"so{token}", system=f"Judge {token}")
    items: list[dict[str, Any]] = [
        {"role": "response_1", "content": token},
        {"role": "user", "content": [{"type": "input_text", "text": token}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": token},
        {"type": "function_call_output", "call_id": "c", "output": token},
        {"role": "user", "content": escaped},
    ]
    answer = await judge.ask(items, instructions=token)
    first, second = (said for _, said in scripted.asked)
    assert [one["content"] for one in first] == [f"Judge {broken}", f"so{broken}"]
    assert second == [
        {"role": "response_1", "content": broken},
        {"role": "user", "content": [{"type": "input_text", "text": broken}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": broken},
        {"type": "function_call_output", "call_id": "c", "output": broken},
        {"role": "user", "content": broken},
    ]
    assert answer.asked["instructions"] == broken
    assert token.encode() not in b"".join(map(bytes, answer.asked["input"]))


@pytest.mark.anyio
async def test_a_session_cannot_forget_it() -> None:
    class Asked(Task):
        said: str

    class Desk(Session[Asked]):
        async def open(self) -> None:
            await self.models.user.ask(self.task.said, whole=False)

    roles, scripted = [Role(name="user")], ScriptedAnswers({"user": ["hi"]})
    row = msgspec.json.encode({"responses_create_params": {"input": "q"}, "said": "Bye.<|im_end|>"})
    await Resource(Desk, roles).open(row, scripted.models(roles))
    assert scripted.asked[0][1][0]["content"] == "Bye.< |im_end|>"
