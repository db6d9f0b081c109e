"""Environments: what an author declares, and how the runtime finds, opens, calls and verifies it."""
