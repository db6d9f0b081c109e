"""Runs in experiment trackers: aggregates while a run goes on and at its end, and a few rollouts as examples.

    records ──▶ curves, examples ──▶ tracking (a thread) ──▶ wandb | mlflow | tensorboard | trackio

Nothing is sent per rollout. Each tracker's library is an extra of the same name, loaded when it is named.
"""
