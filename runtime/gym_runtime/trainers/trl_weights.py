"""The weights of TRL's model on their way to the engines: saved to a folder, loaded from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gym_runtime.client.sync import SyncClient


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

    def sync(self, trainer: Any) -> None:
        """Have the engines load the trainer's weights, unless they have those of this step.

        All processes of a training call it: one saves, and all return when the engines have loaded.

        Raises:
            GymError: not all engines have them.
        """
        step = int(trainer.state.global_step)
        if step == self._loaded:
            return
        accelerator = trainer.accelerator
        # Gathers sharded parameters, so every process takes part.
        state = accelerator.get_state_dict(trainer.model)
        if accelerator.is_main_process:
            # Two folders in turn: an engine may still map the files of the step before.
            path = self._folder / str(step % 2)
            model = accelerator.unwrap_model(trainer.model)
            model.save_pretrained(path, state_dict=_in_engine_type(state))
            self._gym.update_weights(path, f"step-{step}", model=self._model)
        accelerator.wait_for_everyone()
        self._loaded = step


def _in_engine_type(state: dict[str, Any]) -> dict[str, Any]:
    """Weights in bfloat16, as engines serve them; tied ones stay one tensor, so that they are saved once."""
    cast: dict[int, Any] = {}
    for tensor in state.values():
        if tensor.is_floating_point() and tensor.data_ptr() not in cast:
            cast[tensor.data_ptr()] = tensor.detach().bfloat16()
    return {name: cast.get(tensor.data_ptr(), tensor) for name, tensor in state.items()}
