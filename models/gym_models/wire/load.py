"""How busy an engine is: the few of its Prometheus metrics that routing needs.

vLLM, SGLang (with ``--enable-metrics``) and llama.cpp (with ``--metrics``) have them at ``/metrics``. The
text may be hundreds of kilobytes of histograms, so only the lines that matter are parsed.
"""

from __future__ import annotations

import re

import msgspec

PATH = "/metrics"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's load at one point in time.

    Attributes:
        running: requests that are being generated.
        waiting: requests in its queue.
        kv_usage: the share of its cache of keys and values that is in use, 0 to 1.
        prefix_hits: tokens of prompts that were found in its prefix cache, since it started.
        prefix_queries: tokens of prompts that were looked up there, since it started.
    """

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    prefix_hits: int = 0
    prefix_queries: int = 0


_FIELDS = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_usage",
    "vllm:gpu_cache_usage_perc": "kv_usage",  # until 0.10
    "vllm:prefix_cache_hits_total": "prefix_hits",
    "vllm:prefix_cache_queries_total": "prefix_queries",
    "vllm:gpu_prefix_cache_hits_total": "prefix_hits",
    "vllm:gpu_prefix_cache_queries_total": "prefix_queries",
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "waiting",
    "sglang:token_usage": "kv_usage",
    "sglang:cached_tokens_total": "prefix_hits",
    "sglang:prompt_tokens_total": "prefix_queries",
    "llamacpp:requests_processing": "running",
    "llamacpp:requests_deferred": "waiting",
    "llamacpp:kv_cache_usage_ratio": "kv_usage",
}
_LINE = re.compile(rf"^({'|'.join(_FIELDS)})(?:\{{.*\}})? +([^ \n]+)".encode(), re.MULTILINE)


def read(text: bytes) -> Load | None:
    """The load in the metrics; None if they hold no known metric. Several engines behind one address add up.

    >>> read(b'vllm:num_requests_running{engine="0"} 3\\nvllm:num_requests_running{engine="1"} 4\\n').running
    7
    """
    found: dict[str, float] = {}
    for name, value in _LINE.findall(text):
        field = _FIELDS[name.decode()]
        try:
            number = float(value)
        except ValueError:
            continue
        # A share does not add up: the fullest cache is the one that limits.
        if field == "kv_usage":
            found[field] = max(found.get(field, 0.0), number)
        else:
            found[field] = found.get(field, 0.0) + number
    usage = found.pop("kv_usage", 0.0)
    if not found:
        return None
    return Load(kv_usage=usage, **{field: int(number) for field, number in found.items()})
