"""vLLM in the worker itself: the same requests as over HTTP, without a server.

Runs where vLLM is installed and ``GYM_TEST_VLLM_WEIGHTS`` and ``GYM_TEST_VLLM_OTHER_WEIGHTS`` name folders of
weights; see `server`, whose environment has it once this project is installed there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import anyio
import gym_runtime
import pytest
from gym_models.vllm import Adapter
from gym_models.vllm_engine.in_process import URL
from gym_models.wire.load import read
from gym_runtime import clock
from gym_runtime.errors import UsageError
from gym_runtime.messages import pack_logprobs
from gym_runtime.messages.calls import Control, ModelAnswer
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import context, decoded, model_call
from models.vllm.counting import ROW
from models.vllm.real_engine import off_by, scored
from models.vllm.server import TEMPLATE, environment

WEIGHTS = os.environ.get("GYM_TEST_VLLM_WEIGHTS", "")
OTHER_WEIGHTS = os.environ.get("GYM_TEST_VLLM_OTHER_WEIGHTS", "")
ENVIRONMENT = str(Path(__file__).with_name("counting.py"))
ENGINE_ARGS = (
    "--served-model-name tiny --dtype bfloat16 --max-model-len 2048 --max-num-seqs 16 --enforce-eager "
    f"--enable-auto-tool-choice --tool-call-parser hermes --chat-template {TEMPLATE} "
    """--structured-outputs-config '{"disable_any_whitespace": true, "backend": "xgrammar"}'"""
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),  # vLLM's and torch's own
    pytest.mark.skipif(
        find_spec("vllm") is None or not (WEIGHTS and OTHER_WEIGHTS),
        reason="vLLM is not installed here, or has no weights",
    ),
]


def settings(engine_args: str = ENGINE_ARGS) -> ModelSettings:
    return ModelSettings(provider="vllm", name=WEIGHTS, options={"engine_args": engine_args})


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def adapter() -> AsyncIterator[Adapter]:
    async with Adapter(settings()) as made:
        yield made


async def load(adapter: Adapter) -> int:
    engine = adapter.own
    assert engine is not None
    answer = await engine.pool.get(URL.removesuffix("/v1") + "/metrics", deadline_s=clock.monotonic() + 10)
    found = read(answer.body)
    assert found is not None
    return found.running + found.waiting


async def test_calls_weights_and_a_call_given_up(adapter: Adapter) -> None:
    """One engine for all of it: to start one takes half a minute."""
    answer = await adapter.respond(model_call(return_tokens=True, max_output_tokens=8), context(limit_s=60))
    assert answer.tokens is not None
    assert len(answer.tokens.generation_ids) == len(answer.tokens.log_probs) == 4 * 8
    assert answer.tokens.weights[0].version == "default"

    # Log-probabilities are those of the distribution that was sampled from: of one token alone they are 0.
    alone = model_call(return_tokens=True, max_output_tokens=4, metadata={"extra_body": '{"top_k": 1}'})
    answer = await adapter.respond(alone, context(limit_s=60))
    assert answer.tokens is not None
    assert answer.tokens.log_probs == pack_logprobs([0.0] * 4)
    assert decoded(await adapter.respond(model_call(max_output_tokens=8), context(limit_s=60))).output

    endless = {"extra_body": json.dumps({"ignore_eos": True})}
    for tokens in (True, False):
        call = model_call(return_tokens=tokens, max_output_tokens=1900, metadata=endless)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(adapter.respond, call, context(limit_s=300))
            while not await load(adapter):
                await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        with anyio.fail_after(15):
            while await load(adapter):
                await anyio.sleep(0.05)

    assert (await adapter.control(Control(op="pause"))).paused
    answers: list[ModelAnswer] = []

    async def ask() -> None:
        answers.append(await adapter.respond(model_call(return_tokens=True), context(limit_s=60)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        updated = await adapter.control(Control(op="update", version="v2", path=OTHER_WEIGHTS))
        assert (updated.paused, updated.version, answers) == (True, "v2", [])
        await adapter.control(Control(op="resume"))
    assert answers[0].weight_version == "v2"

    engine = adapter.own
    assert engine is not None
    body, deadline_s = json.dumps(scored(OTHER_WEIGHTS)).encode(), clock.monotonic() + 60
    told = await engine.pool.post(f"{URL}/completions", body, deadline_s=deadline_s)
    assert off_by(OTHER_WEIGHTS, json.loads(told.body)) < 0.1


async def test_rollouts_of_a_system_whose_worker_has_the_engine() -> None:
    async with gym_runtime.connect(model=settings(), environments=[ENVIRONMENT], concurrency=8) as gym:
        records = [
            record
            async for record in gym.rollouts(
                [ROW], environment=ENVIRONMENT, repeats=8, return_token_ids=True, max_output_tokens=60
            )
        ]
    assert len(records) == 8
    assert all(record.reward is not None for record in records)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("--no-such-argument 1", "unrecognized arguments: --no-such-argument"),
        ("--enable-auto-tool-choice --tool-call-parser nosuch", "invalid tool call parser: nosuch"),
        ("--reasoning-parser nosuch", "Reasoning parser .nosuch. not found"),
    ],
)
async def test_arguments_that_vllm_does_not_take(said: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        async with Adapter(settings(said)):
            pass


async def test_a_tool_parser_of_ones_own(tmp_path: Path) -> None:
    """It is loaded as by ``vllm serve``; the model, which does not exist, is loaded after it."""
    plugin = tmp_path / "own_parser.py"
    plugin.write_text(
        "from vllm.tool_parsers import ToolParserManager\n"
        "from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser\n"
        "ToolParserManager.register_module('own')(type('Own', (Hermes2ProToolParser,), {}))\n"
    )
    chosen = f"--enable-auto-tool-choice --tool-parser-plugin {plugin} --tool-call-parser own"
    absent = ModelSettings(provider="vllm", name=str(tmp_path), options={"engine_args": chosen})
    with pytest.raises(UsageError, match="vLLM does not start with"):
        async with Adapter(absent):
            pass


def test_the_command_line_says_what_is_wrong() -> None:
    command = [sys.executable, "-m", "gym_runtime.cli.main", "run", "mcqa", "--limit", "1"]
    said = subprocess.run([*command, "--model", "vllm//no/such/model"], capture_output=True, text=True)
    assert said.returncode != 0
    assert "/no/such/model" in said.stderr
