"""Environments of the library `aviary`, played as episodes: their shared parts.

The library is imported when a session opens, not before.
"""
