"""The vLLM adapter before stub engines."""

from __future__ import annotations

from typing import Any

from gym_runtime.workers.adapter import ModelSettings
from stubs.stub_vllm import StubVllm


def settings(*stubs: StubVllm, **more: Any) -> ModelSettings:
    return ModelSettings(provider="vllm", name="stub", urls=tuple(stub.url for stub in stubs), **more)
