"""A server whose log-probabilities are not those of the distribution that it samples from is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gym_faces.dialects import chat_request
from gym_models.vllm import Adapter
from gym_models.vllm_engine.log_probs import another_temperature
from models.model_calls import context, model_call
from models.vllm.adapter.adapters import settings
from stubs.stub_vllm import StubVllm

pytestmark = pytest.mark.anyio
CHAT = f"/v1{chat_request.PATH}"


async def said(stub: StubVllm, *temperatures: float | None) -> None:
    async with Adapter(settings(stub)) as adapter:
        for temperature in temperatures:
            how = {} if temperature is None else {"temperature": temperature}
            await adapter.respond(model_call(return_tokens=True, **how), context())


async def test_log_probabilities_before_the_temperature_are_told_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with StubVllm().running() as stub:
        await said(stub, 1.0, 0.7, 0.7, 1.2)
    assert "".join(capfd.readouterr()).count("--logprobs-mode processed_logprobs") == 1
    assert stub.asked.count(CHAT) == 2


async def test_log_probabilities_of_what_was_sampled_from_are_no_news(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with StubVllm(log_probs="processed").running() as stub:
        await said(stub, 0.7)
    assert "logprobs" not in "".join(capfd.readouterr())
    assert stub.asked.count(CHAT) == 2


@pytest.mark.parametrize("params", [{}, {"sampling_params": {}}, {"sampling_params": {"temperature": None}}])
def test_a_rendering_may_leave_the_temperature_out(params: dict[str, Any]) -> None:
    assert not another_temperature(json.dumps({"token_ids": [1], **params}).encode())


async def test_a_server_is_asked_nothing_where_both_are_the_same() -> None:
    async with StubVllm().running() as stub:
        await said(stub, None, 1.0, 0.0)
    assert CHAT not in stub.asked
