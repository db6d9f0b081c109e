"""Agents: each module is one way to run a rollout, named after the module."""
