from .openrlhf import GymAgentExecutor as GymAgentExecutor
from .openrlhf import reward_func as reward_func
from .skyrl import GymGenerator as GymGenerator
from .skyrl_environment import GymEnv as GymEnv
from .training_rollouts import dataset_rows as dataset_rows
from .trl import GymSpec as GymSpec
from .verl import GymAgentLoop as GymAgentLoop
from .verl import GymRewardManager as GymRewardManager
