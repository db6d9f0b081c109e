"""The routed experts of vLLM's answers: a file of numpy in base64, which is read here without numpy.

A vLLM with ``--enable-return-routed-experts`` adds them to each choice, for all tokens of the prompt and the
completion but the last: shape (tokens - 1, layers, top_k), uint8, or uint16 of more than 256 experts. It
does not start with this flag and a connector that loads a prompt's cache from elsewhere, whose experts would
be stale; an answer that names such a connector's parameters is refused here, too.

Source: vLLM, ``entrypoints/scale_out`` and ``entrypoints/openai``, ``docs/training/routed_experts.md``.
"""

from __future__ import annotations

import re
from base64 import b64decode

import msgspec
from gym_faces.dialects import pieces
from gym_runtime.adapters import Experts, Tokens
from gym_runtime.errors import ModelRefused, TaskError

from gym_models.vllm_engine.tokens import Generated

_HEADER = re.compile(
    rb"""\s{0,9}\{'descr': '(\|u1|<u2)', 'fortran_order': False, """
    rb"""'shape': \((\d{1,9}), (\d{1,4}), (\d{1,3})\), ?\}\s{0,99}"""
)
_MAGIC = b"\x93NUMPY\x01\x00"
_decode_text = msgspec.json.Decoder(str | None).decode


def with_experts(said: Tokens, answer: Generated) -> Tokens:
    """A call's tokens with what the engine wrote as their experts.

    Raises:
        ModelRefused: it wrote none, or not those of these tokens; or a connector shares its caches.
    """
    if not said.generation_ids:
        return said
    if not pieces.is_null(answer.kv_transfer_params):
        raise ModelRefused(
            "the engine shares its caches with others, and the routed experts of a cache from elsewhere are "
            "stale: start vLLM without --kv-transfer-config, or leave out the option routed_experts",
            stage="model",
        )
    written = answer.choices[0].routed_experts
    try:
        text = _decode_text(written) if written else None
        if text is None:
            raise ModelRefused(
                "the engine sent no routed_experts: start vLLM with --enable-return-routed-experts, or leave "
                "out the option routed_experts",
                stage="model",
            )
        experts = _array(text).checked((len(said.prompt_ids) + len(said.generation_ids)) // 4)
    except (ValueError, TaskError) as error:
        raise ModelRefused(
            f"the engine's routed_experts are not those of its answer: {error}", stage="model"
        ) from error
    return msgspec.structs.replace(said, experts=experts)


def _array(text: str) -> Experts:
    """
    Raises:
        ValueError: it is no array of this form.
    """
    file = b64decode(text, validate=True)
    size = int.from_bytes(file[8:10], "little")
    found = _HEADER.fullmatch(file[10 : 10 + size])
    if not file.startswith(_MAGIC) or found is None:
        raise ValueError(f"no numpy array of uint8 or uint16 with three dimensions, but {file[:99]!r}")
    data, wide = file[10 + size :], found[1] == b"<u2"
    tokens, layers, top_k = map(int, found.groups()[1:])
    experts = Experts(layers=layers, top_k=top_k, data=data, wide=wide)
    if len(data) != tokens * experts.row_bytes:
        raise ValueError(f"{len(data):,} bytes for {tokens} x {layers} x {top_k} numbers")
    return experts
