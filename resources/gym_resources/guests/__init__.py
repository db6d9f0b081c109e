"""Environments of other projects, which run here as they are: ``SCHEME:ADDRESS`` where a name is asked for.

Each module is a scheme, and has a function ``environment(address)``.
"""
