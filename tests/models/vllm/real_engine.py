"""A real vLLM, where there is one."""

from __future__ import annotations

import os
from typing import Any

from gym_runtime.workers.adapter import ModelSettings

URL = os.environ.get("GYM_TEST_VLLM_URL", "")


def settings(url: str = URL, **more: Any) -> ModelSettings:
    return ModelSettings(provider="vllm", name="tiny", urls=(url,), **more)
