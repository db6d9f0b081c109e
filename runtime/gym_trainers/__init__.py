"""Adapters to trainers: each gives a trainer what it asks for.

Either the system has engines, and a trainer takes its rollouts through a `SyncClient` (`trl`); or the trainer
has them, and the system's rollouts are sampled by the trainer's engine (`openrlhf`, `verl`, `skyrl`, on
`token_engine`). Those modules import the trainer, because they derive from its classes, and so their names
are loaded at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gym_trainers.training_rollouts import dataset_rows as dataset_rows
from gym_trainers.trl import GymSpec as GymSpec

if TYPE_CHECKING:
    from gym_trainers.openrlhf import GymAgentExecutor as GymAgentExecutor
    from gym_trainers.openrlhf import reward_func as reward_func
    from gym_trainers.skyrl import GymGenerator as GymGenerator
    from gym_trainers.skyrl_environment import GymEnv as GymEnv
    from gym_trainers.verl import GymAgentLoop as GymAgentLoop
    from gym_trainers.verl_reward import GymRewardManager as GymRewardManager

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
        raise AttributeError(f"module 'gym_trainers' has no attribute '{name}'")
    return getattr(import_module(f"gym_trainers.{home}"), name)
