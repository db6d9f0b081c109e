"""Adapters to trainers: each gives a trainer what it asks for, through a `SyncClient`.

A trainer's own packages are imported where they are used, so these modules can be imported without them.
"""

from gym_runtime.trainers.trl import GymSpec as GymSpec
