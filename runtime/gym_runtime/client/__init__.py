"""The client: publish rollouts, read their records, look around, cancel. For trainers and notebooks::

    async with gym_runtime.connect(model="scripted/message", environments=["mcqa"]) as gym:
        async for record in gym.rollouts(rows, environment="mcqa", repeats=8):
            print(record.reward)

Each of the modules `runs`, `publishing`, `resources`, `rollouts` and `client` builds on the one before: what
is known of runs, what passes between a client and the workers, sessions, rollouts of rows, all that a trainer
asks for.
"""

from gym_runtime.client.client import Client as Client
from gym_runtime.client.connecting import connect as connect
from gym_runtime.client.environment_session import EnvironmentSession as EnvironmentSession
from gym_runtime.client.environment_session import Observation as Observation
from gym_runtime.client.pools import make_pools as make_pools
from gym_runtime.client.standing_run import StandingRun as StandingRun
from gym_runtime.client.status import Status as Status
from gym_runtime.client.streaming import background as background
from gym_runtime.client.sync import SyncClient as SyncClient
from gym_runtime.client.sync import connect_sync as connect_sync
from gym_runtime.messages.run_info import RunInfo as RunInfo
from gym_runtime.messages.run_info import new_run_id as new_run_id
