"""Weights that change while an engine serves: pause, load, name, resume.

    ========================  ====================================================================
    ``pause``                 ``POST /pause?mode=keep``: everything waits, nothing is aborted
    ``resume``                ``POST /resume``
    ``set_version``           ``POST /update_weight_version``
    ``update``                pause, reload, forget all cached keys and values, name, resume
    ``state``                 ``GET /is_paused``, ``GET /weight_info``
    ========================  ====================================================================

Calls in progress go on after an update with the tokens that they have, whose keys and values are computed
again: no token is sampled from a cache that old weights filled. An engine that was paused before stays
paused. A vLLM for CPUs whose model has tied embeddings needs an extension, without which it would keep its
old output layer (`gym_models.vllm_engine.output_layer`): ``update`` is refused there. These endpoints need
``VLLM_SERVER_DEV_MODE=1`` on the server; without it the version is the one last set through this adapter.
Source: vLLM 0.32, ``vllm/entrypoints/rl`` and ``vllm/entrypoints/serve/dev``.
"""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
from gym_runtime import clock
from gym_runtime.adapters import Control, ControlAnswer
from gym_runtime.errors import ModelRefused

from gym_models.vllm_engine.output_layer import EXTENSION, PACK
from gym_models.vllm_engine.vllm_server import VllmEngine
from gym_models.wire.failures import failure
from gym_models.wire.http import Answer

LIMIT_S = 60.0
UPDATE_LIMIT_S = 1800.0
_ABSENT = (403, 404, 405)


class _State(msgspec.Struct):
    is_paused: bool = False
    weight_version: str = ""


_decode_state = msgspec.json.Decoder(_State).decode


async def control(engine: VllmEngine, command: Control) -> ControlAnswer:
    """Carry out a command on one engine; see `gym_runtime.workers.adapter.Controllable`."""
    match command.op:
        case "pause":
            await _post(engine, "/pause?mode=keep")
        case "resume":
            await _post(engine, "/resume")
        case "set_version":
            await _name(engine, command.version)
        case "update":
            await _update(engine, command)
        case "state":
            pass
    return await _state(engine)


async def _update(engine: VllmEngine, command: Control) -> None:
    if not command.path:
        raise ModelRefused(
            "update needs the path from which the engine loads its weights; "
            "for weights transferred in another way send pause, set_version and resume",
            stage="model",
        )
    packs = await _keeps_output_layer(engine)
    paused = (await _state(engine)).paused
    if not paused:
        await _post(engine, "/pause?mode=keep")
    try:
        load = _rpc("reload_weights", weights_path=command.path)
        await _post(engine, "/collective_rpc", load, limit_s=UPDATE_LIMIT_S)
        if packs:
            await _post(engine, "/collective_rpc", _rpc(PACK))
        await _post(engine, "/reset_prefix_cache?reset_running_requests=true")
        if command.version:
            await _name(engine, command.version)
    finally:
        # Resume even after an error: rollouts wait.
        with anyio.CancelScope(shield=True):
            if not paused:
                await _post(engine, "/resume")


async def _keeps_output_layer(engine: VllmEngine) -> bool:
    """Whether a reload would leave the engine its old output layer, which then has to be packed again.

    Raises:
        ModelRefused: so it is, and the engine cannot pack it; its weights are as they were.
    """
    told = await _answer(engine, "POST", "/collective_rpc", _rpc("get_model_inspection"))
    if b"backend=CPU" not in told.body:
        return False
    # Tied embeddings are one tensor, which is named once. The other weights are packed elsewhere, so this is
    # quick on a CPU.
    named = await _answer(engine, "POST", "/collective_rpc", _rpc("compute_weight_checksums"))
    if b"lm_head.weight" in named.body:
        return False
    if (await _answer(engine, "POST", "/collective_rpc", _rpc(PACK))).status >= 300:
        raise ModelRefused(
            f"{engine.root} is a vLLM for CPUs whose model has tied embeddings, and would keep the old "
            "output layer: install gym-runtime beside it and start it with --worker-extension-cls "
            f"{EXTENSION}, or give it weights with an lm_head.weight of their own, and tie_word_embeddings "
            "false in their config.json",
            stage="model",
        )
    return True


def _rpc(method: str, **arguments: str) -> dict[str, Any]:
    return {"method": method, "kwargs": arguments}


async def _name(engine: VllmEngine, version: str) -> None:
    answer = await _answer(engine, "POST", "/update_weight_version", {"new_version": version})
    if answer.status not in _ABSENT:
        _require(engine, answer, "/update_weight_version")
    engine.version = version


async def _state(engine: VllmEngine) -> ControlAnswer:
    paused = await _answer(engine, "GET", "/is_paused")
    if paused.status in _ABSENT and engine.version:
        return ControlAnswer(version=engine.version)
    _require(engine, paused, "/is_paused")
    said = await _answer(engine, "GET", "/weight_info")
    if said.status == 200:
        engine.version = _decode_state(said.body).weight_version
    return ControlAnswer(paused=_decode_state(paused.body).is_paused, version=engine.version)


async def _post(engine: VllmEngine, path: str, body: Any = None, limit_s: float = LIMIT_S) -> None:
    _require(engine, await _answer(engine, "POST", path, body, limit_s), path)


async def _answer(
    engine: VllmEngine, method: str, path: str, body: Any = None, limit_s: float = LIMIT_S
) -> Answer:
    url, deadline_s = engine.root + path, clock.monotonic() + limit_s
    if method == "GET":
        return await engine.pool.get(url, deadline_s=deadline_s)
    return await engine.pool.post(url, msgspec.json.encode(body or {}), deadline_s=deadline_s)


def _require(engine: VllmEngine, answer: Answer, path: str) -> None:
    if answer.status in _ABSENT:
        raise ModelRefused(
            f"{engine.root} has no {path.partition('?')[0]}: start vLLM with VLLM_SERVER_DEV_MODE=1 in its "
            "environment, where only the trainer and this runtime reach it",
            stage="model",
        )
    if answer.status >= 300:
        raise failure(answer, engine.endpoint)
