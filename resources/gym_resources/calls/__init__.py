"""Tool calls that are themselves the answer: what was expected, and how near a model's calls come to it.

Pure functions over decoded JSON; none calls anything.
"""
