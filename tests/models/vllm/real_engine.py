"""A real vLLM, where there is one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import mean
from typing import Any

from gym_runtime.workers.adapter import ModelSettings
from models.vllm.server import EXPECTED

URL = os.environ.get("GYM_TEST_VLLM_URL", "")


def settings(url: str = URL, **more: Any) -> ModelSettings:
    return ModelSettings(provider="vllm", name="tiny", urls=(url,), **more)


def scored(folder: str) -> dict[str, Any]:
    """A request for completions that tells how likely an engine finds the text beside these weights."""
    ids, _ = json.loads((Path(folder) / EXPECTED).read_bytes())
    return {"model": "tiny", "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0}


def off_by(folder: str, answer: Any) -> float:
    """How far an engine's log-probabilities are from transformers' with these weights, in the mean.

    bfloat16 costs 0.01; one layer with other weights, 1.
    """
    ids, expected = json.loads((Path(folder) / EXPECTED).read_bytes())
    told = answer["choices"][0]["prompt_logprobs"][1:]
    found = [of[str(one)]["logprob"] for one, of in zip(ids[1:], told, strict=True)]
    return mean(abs(one - other) for one, other in zip(found, expected, strict=True))
