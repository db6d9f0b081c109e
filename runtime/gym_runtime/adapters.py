"""Names for authors of agents and model adapters; the list is in ``adapters.pyi``."""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names("gym_runtime", __file__)
