"""Checks of environments: their contract, their throughput, and the rewards of recorded rollouts."""
