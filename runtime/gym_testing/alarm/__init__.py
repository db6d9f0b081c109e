"""The alarm while training: a second look at rewarded rollouts, and a sequential test of what it says.

The names are listed in ``__init__.pyi``; each is loaded from its module when it is first used.
"""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
