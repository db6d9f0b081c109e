"""The package `renderers` itself, with the tokenizer and the chat template of a real model.

python3.11 -m venv renderers && renderers/bin/pip install 'renderers[transformers]' tiktoken dashscope -e .
renderers/bin/pip install --no-deps trl && renderers/bin/pip install pytest pytest-timeout pytest-asyncio
renderers/bin/pytest tests/trainers/test_real_renderers.py
"""

from __future__ import annotations

import json
import warnings
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from gym_models.vllm_engine.renderer import RendererPrefixes, renderer_of
from gym_runtime.adapters import Prefix
from gym_runtime.errors import UsageError
from gym_runtime.messages import pack_ids
from gym_trainers.token_engine import Sampled, TokenEngine, library_renderer
from models.model_calls import TOOL, context, model_call, output
from models.vllm.adapter.test_adapter import continued, ids
from trainers.qwen3 import NAME, save_tokenizer

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SURE = {"role": "user", "content": "Are you sure?"}
ANSWER = "<think>\nHm, é.\n</think>\n\nYes.<|im_end|>"
OPEN = "<think>\nHm, é.<|im_end|>"
CALLED = (
    "<think>\nIt is far.\n</think>\n\n<tool_call>\n"
    '{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>'
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hub")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save_tokenizer(made)
    return made


@pytest.fixture
def tokenizer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its name is a path here, which the package and vLLM take for the one on the hub."""
    monkeypatch.chdir(folder)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(NAME)


async def turns(tokenizer: Any, *texts: str, renderer: Any, tools: Any = ()) -> list[Any]:
    """The answers of an engine that samples these texts; after each the user, or a tool, says something."""
    left = list(texts)

    async def generate(prompt: list[int], sampling: dict[str, Any], rollout: str) -> Sampled:
        found = tokenizer.encode(left.pop(0), add_special_tokens=False)
        return Sampled(found, [-0.5] * len(found))

    async with TokenEngine(tokenizer, generate, context=4096, renderer=renderer) as engine:
        call, answers = model_call(return_tokens=True, tools=list(tools)), list[Any]()
        while left:
            answers.append(await engine.respond(call, context()))
            called = [item for item in output(answers[-1]) if item["type"] == "function_call"]
            done = [
                {"type": "function_call_output", "call_id": one["call_id"], "output": "cold"}
                for one in called
            ]
            call = continued(call, answers[-1], *(done or [SURE]))
    return answers


def goes_on(answers: list[Any]) -> list[bool]:
    return [ids(new)[0].startswith(ids(old)[1]) for old, new in pairwise(answers)]


async def test_auto_goes_on_where_qwen3s_template_drops_thinking(tokenizer: Any) -> None:
    texts, tools = (CALLED, ANSWER, ANSWER, ANSWER), [TOOL]
    assert goes_on(await turns(tokenizer, *texts, renderer=None, tools=tools)) == [True, False, False]
    answers = await turns(tokenizer, *texts, renderer=library_renderer(tokenizer), tools=tools)
    assert goes_on(answers) == [True] * 3
    last = ids(answers[-1])[1]
    said = tokenizer.decode([int.from_bytes(last[at : at + 4], "little") for at in range(0, len(last), 4)])
    new = "<|im_start|>user\nAre you sure?<|im_end|>\n<|im_start|>assistant\n"
    assert said.endswith(f"{ANSWER}\n{new}{ANSWER}\n{new}{ANSWER}")
    assert "<tool_response>\ncold\n</tool_response><|im_end|>\n<|im_start|>assistant\n" in said


async def test_the_library_decides_by_the_last_completion_alone(tokenizer: Any) -> None:
    """It has no prompt after thinking that never closed, whatever the turns before it were."""
    answers = await turns(tokenizer, ANSWER, OPEN, ANSWER, renderer=library_renderer(tokenizer))
    assert goes_on(answers) == [True, False]


def test_a_model_that_the_package_does_not_know_is_refused_with_the_remedy(tokenizer: Any) -> None:
    tokenizer.name_or_path = "mine"
    tokenizer.save_pretrained("mine")
    with pytest.raises(UsageError, match="give a function that makes one, or leave the renderer out"):
        library_renderer(tokenizer)
    with pytest.raises(UsageError, match=r"renderer='auto': .*leave it out, or give MODULE:FUNCTION"):
        renderer_of("auto", "mine")


async def test_auto_of_the_provider_vllm_goes_on(tokenizer: Any) -> None:
    """With the requests that the adapter sends to its server, and the ids that the server renders of them."""
    messages = [{"role": "user", "content": "Is it far?"}]
    ids_ = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    said = tokenizer.encode(ANSWER, add_special_tokens=False)
    prefix = Prefix(ids=pack_ids([*ids_, *said]), items=2, completion=len(said))
    past = [*messages, {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm, é."}]
    first, before, now = (json.dumps({"messages": one}).encode() for one in (messages, past, [*past, SURE]))
    renderer = RendererPrefixes(partial(renderer_of, "auto", NAME), "http://127.0.0.1")
    await renderer.compare(first, ids_)
    found = await renderer.continued(prefix, now, before)
    assert found is not None
    assert found[: len(ids_) + len(said)] == [*ids_, *said]
    new = tokenizer.decode(found[len(ids_) + len(said) :])
    assert new == "\n<|im_start|>user\nAre you sure?<|im_end|>\n<|im_start|>assistant\n"
