"""The client: publish rollouts, read their records, look around, cancel. For trainers and notebooks::

    async with gym_runtime.connect(model="scripted/message", environments=["mcqa"]) as gym:
        async for record in gym.rollouts(rows, environment="mcqa", repeats=8):
            print(record.reward)

`client` is the public face; `row_sources` turns rows into the rollouts of a new run, `run` is the life of one
run, and `runs` is the broker's knowledge of all runs.
"""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
