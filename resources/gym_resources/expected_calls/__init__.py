"""Tool calls that are themselves the answer: the expected calls, and how well a model's calls match them.

Pure functions over decoded JSON; no call is executed.
"""
