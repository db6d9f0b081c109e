"""What TRL's AsyncGRPOTrainer wants of a GPU, for a CPU: its attention kernel, which is torch's then."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention


def attention(
    query: Any, key: Any, value: Any, query_ends: Any, key_ends: Any, *_: Any, softmax_scale: Any, **__: Any
) -> Any:
    """As ``flash_attn_varlen_func``, causal: sequences end to end, (tokens, heads, head size) each."""
    groups = query.shape[1] // key.shape[1]
    key, value = (one.repeat_interleave(groups, 1) for one in (key, value))
    found: list[Any] = []
    for place in range(len(query_ends) - 1):
        asked = slice(int(query_ends[place]), int(query_ends[place + 1]))
        seen = slice(int(key_ends[place]), int(key_ends[place + 1]))
        parts = (one.transpose(0, 1)[None].float() for one in (query[asked], key[seen], value[seen]))
        count, past = asked.stop - asked.start, seen.stop - seen.start
        mask = torch.ones(count, past, dtype=torch.bool).tril(past - count)
        out = scaled_dot_product_attention(*parts, attn_mask=mask, scale=softmax_scale)
        found.append(out[0].transpose(0, 1).to(query.dtype))
    return torch.cat(found)


def install() -> None:
    """Let the package ``kernels`` give `attention`, and the device have a name that TRL knows."""
    kernels: Any = ModuleType("kernels")
    kernels.get_kernel = lambda *_, **__: SimpleNamespace(flash_attn_varlen_func=attention)
    sys.modules["kernels"] = kernels
    torch.cuda.get_device_name = lambda *_: "NVIDIA H100 80GB HBM3"  # pyright: ignore
