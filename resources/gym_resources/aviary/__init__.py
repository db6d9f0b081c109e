"""Environments of the library `aviary`, played as episodes: what those that are built on it share.

The library is imported when a session opens, not before.
"""
