"""Moves the weights of TRL's model to the engines: saved to a folder, loaded from there."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gym_runtime.client import SyncClient
from gym_runtime.errors import GymError
from gym_runtime.logs import logger
from gym_runtime.timing import WORKERS_BACK_S, WORKERS_LOOK_S

SHARD_BYTES = 2 * 2**30


class Weights:
    """Saves a trainer's weights once a step, and has the engines load them.

    Args:
        folder: where the trainer writes and every engine reads; best in memory, such as ``/dev/shm``.
        model: the pool whose engines load them.
    """

    def __init__(self, gym: SyncClient, folder: Path, model: str) -> None:
        self._gym = gym
        self._folder = folder
        self._model = model
        self._loaded: int | None = None
        self._loads = 0

    def sync(self, trainer: Any) -> None:
        """Have the engines load the trainer's weights, unless they have those of this step.

        All processes of a training call it: one saves, and all return when the engines have loaded. What is
        saved has an adapter (LoRA) merged into it; in the trainer the adapter stays apart.

        Raises:
            GymError: not all engines have them, and engines that died are not back within `WORKERS_BACK_S`.
        """
        step = int(trainer.state.global_step)
        if step == self._loaded:
            return
        accelerator = trainer.accelerator
        with _merged(accelerator.unwrap_model(trainer.model)) as model:
            # Gathers sharded parameters, so every process takes part.
            state = accelerator.get_state_dict(trainer.model)
            path = self.folder
            if accelerator.is_main_process:
                model.save_pretrained(path, state_dict=_in_engine_type(_without_adapter(state)))
        if accelerator.is_main_process:
            self.load(path, f"step-{step}")
        accelerator.wait_for_everyone()
        self._loaded = step

    @property
    def folder(self) -> Path:
        """Where the next weights go: two folders in turn, as an engine may map the files of the last."""
        # Not by the trainer's step: with several updates on a batch it is even each time.
        return self._folder / str(self._loads % 2)

    def load(self, path: Path, version: str) -> None:
        """Have all engines load weights; again if one dies meanwhile, when its supervisor started another.

        Raises:
            GymError: not all engines have them, and engines that died are not back within `WORKERS_BACK_S`.
        """
        until_s, said = time.monotonic() + WORKERS_BACK_S, ""
        while True:
            try:
                self._gym.update_weights(path, version, model=self._model)
                self._loads += 1
                return
            except GymError as error:
                if not error.retryable or time.monotonic() > until_s:
                    raise
                if said != str(error):
                    said = str(error)
                    logger().warning("the engines are updated again", version=version, error=said)
                time.sleep(WORKERS_LOOK_S)


@contextmanager
def _merged(model: Any) -> Generator[Any]:
    """The model that engines serve: an adapter of the package peft is merged into it for as long."""
    if not hasattr(model, "merge_adapter"):
        yield model
        return
    model.merge_adapter()
    try:
        yield model.get_base_model()
    finally:
        model.unmerge_adapter()


def _without_adapter(state: dict[str, Any]) -> dict[str, Any]:
    """Weights by the names of the model itself: peft puts its own beside them, and renames what it wraps."""
    found: dict[str, Any] = {}
    for name, tensor in state.items():
        if not re.search(r"\.(lora_\w+|original_module)\.", name):
            plain = name.removeprefix("base_model.model.").replace(".base_layer.", ".")
            found[plain.replace(".modules_to_save.default.", ".")] = tensor
    return found


def _in_engine_type(state: dict[str, Any]) -> dict[str, Any]:
    """Weights in bfloat16, as engines serve them; tied ones stay one tensor, so that they are saved once."""
    cast: dict[int, Any] = {}
    for tensor in state.values():
        if tensor.is_floating_point() and tensor.data_ptr() not in cast:
            cast[tensor.data_ptr()] = tensor.detach().bfloat16()
    return {name: cast.get(tensor.data_ptr(), tensor) for name, tensor in state.items()}


def write_shards(tensors: Iterator[tuple[str, Any]], path: Path) -> None:
    """Write weights as a checkpoint of Hugging Face's, in bfloat16, with one shard in memory at a time."""
    from safetensors.torch import save_file  # pyright: ignore

    places: dict[str, str] = {}
    for number, shard in enumerate(_shards(tensors)):
        file = f"model-{number:05}.safetensors"
        save_file(shard, path / file, metadata={"format": "pt"})
        places |= dict.fromkeys(shard, file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def _shards(tensors: Iterator[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    shard: dict[str, Any] = {}
    size_bytes = 0
    for name, tensor in tensors:
        shard[name] = tensor.bfloat16().contiguous().cpu()
        size_bytes += shard[name].nbytes
        if size_bytes >= SHARD_BYTES:
            yield shard
            shard, size_bytes = {}, 0
    if shard:
        yield shard
