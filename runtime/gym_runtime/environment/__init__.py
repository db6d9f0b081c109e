"""Environments: what an author declares, and how it is found, opened, called and judged."""
