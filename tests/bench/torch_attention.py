"""torch's attention in the place of the kernel that TRL's AsyncGRPOTrainer fetches from the network."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention


def on_cpu(
    query: Any, key: Any, value: Any, query_ends: Any, key_ends: Any, *_: Any, softmax_scale: Any, **__: Any
) -> Any:
    """As ``flash_attn_varlen_func``, causal: sequences end to end, (tokens, heads, head size) each."""
    key, value = for_each_head(query, key, value)
    found: list[Any] = []
    for place in range(len(query_ends) - 1):
        asked = slice(int(query_ends[place]), int(query_ends[place + 1]))
        seen = slice(int(key_ends[place]), int(key_ends[place + 1]))
        parts = (one.transpose(0, 1)[None].float() for one in (query[asked], key[seen], value[seen]))
        count, past = asked.stop - asked.start, seen.stop - seen.start
        mask = torch.ones(count, past, dtype=torch.bool, device=query.device).tril(past - count)
        out = scaled_dot_product_attention(*parts, attn_mask=mask, scale=softmax_scale)
        found.append(out[0].transpose(0, 1).to(query.dtype))
    return torch.cat(found)


def on_gpu(
    query: Any,
    key: Any,
    value: Any,
    query_ends: Any,
    key_ends: Any,
    longest_query: Any,
    longest_key: Any,
    softmax_scale: Any,
    **_: Any,
) -> Any:
    """The same by torch's own FlashAttention, which is ahead of the CPU's loop over sequences."""
    from torch.nn.attention.varlen import varlen_attn

    key, value = for_each_head(query, key, value)
    longest = (int(longest_query), int(longest_key))
    return varlen_attn(
        query, key, value, query_ends, key_ends, *longest, scale=softmax_scale, window_size=(-1, 0)
    )


def for_each_head(query: Any, *of_groups: Any) -> tuple[Any, ...]:
    """Keys and values, which several heads of the query share, once for each head."""
    return tuple(one.repeat_interleave(query.shape[1] // one.shape[1], 1) for one in of_groups)


def install() -> None:
    """Let the package ``kernels`` give this attention. A CPU gets the name of a device that TRL knows."""
    on_this_device = on_gpu if torch.cuda.is_available() else on_cpu
    kernels: Any = ModuleType("kernels")
    kernels.get_kernel = lambda *_, **__: SimpleNamespace(flash_attn_varlen_func=on_this_device)
    sys.modules["kernels"] = kernels
    if on_this_device is on_cpu:
        torch.cuda.get_device_name = lambda *_: "NVIDIA H100 80GB HBM3"  # pyright: ignore


def main() -> None:
    """Compare both on a GPU: values and gradients of packed sequences, some with a shared beginning."""
    torch.manual_seed(0)
    made = {"device": "cuda", "dtype": torch.bfloat16}
    query_counts, key_counts = [5, 40, 1, 17], [9, 40, 30, 17]
    ends = [
        torch.tensor([0, *counts], **{**made, "dtype": torch.int32}).cumsum(0, dtype=torch.int32)
        for counts in (query_counts, key_counts)
    ]
    given = [torch.randn(total, heads, 64, **made) for total, heads in ((63, 9), (96, 3), (96, 3))]
    found: list[list[Any]] = []
    for attention in (on_cpu, on_gpu):
        leaves = [one.clone().requires_grad_() for one in given]
        out = attention(*leaves, *ends, max(query_counts), max(key_counts), softmax_scale=0.125)
        found.append([out, *torch.autograd.grad(out.float().square().sum(), leaves)])
    gaps = [(a - b).abs().max().item() / b.abs().max().item() for a, b in zip(*found, strict=True)]
    print("largest relative difference of output and gradients:", [round(gap, 4) for gap in gaps])
    assert max(gaps) < 0.03, gaps


if __name__ == "__main__":
    main()
