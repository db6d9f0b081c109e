"""The options of every command: each is declared once, as a field with its default, its bounds and its help.

The command line library (cyclopts) makes flags of the fields and help of the docstrings. What a run asks of
its rollouts is in `gym_runtime.messages.rollout_settings`. These modules are imported for ``--help``, so they
import nothing heavy.
"""
