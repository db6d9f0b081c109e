"""Adapters to trainers: each gives a trainer what it asks for.

Either the system has engines, and a trainer takes its rollouts through a `SyncClient` (`trl`); or the trainer
has them, and the system's rollouts are sampled by the trainer's engine (`openrlhf`, `verl`, `skyrl`, on
`token_engine`). Those modules import the trainer, because they derive from its classes, and so their names
are loaded at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gym_runtime.trainers.training_rollouts import dataset_rows as dataset_rows
from gym_runtime.trainers.trl import GymSpec as GymSpec

if TYPE_CHECKING:
    from gym_runtime.trainers.openrlhf import GymAgentExecutor as GymAgentExecutor
    from gym_runtime.trainers.openrlhf import reward_func as reward_func
    from gym_runtime.trainers.skyrl import GymGenerator as GymGenerator
    from gym_runtime.trainers.skyrl_environment import GymEnv as GymEnv
    from gym_runtime.trainers.verl import GymAgentLoop as GymAgentLoop
    from gym_runtime.trainers.verl_reward import GymRewardManager as GymRewardManager

_HOME = {
    "GymAgentExecutor": "openrlhf",
    "reward_func": "openrlhf",
    "GymGenerator": "skyrl",
    "GymEnv": "skyrl_environment",
    "GymAgentLoop": "verl",
    "GymRewardManager": "verl_reward",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'gym_runtime.trainers' has no attribute '{name}'")
    return getattr(import_module(f"gym_runtime.trainers.{home}"), name)
