"""Boxes on this machine and elsewhere: providers behind one protocol, and leases that the broker keeps."""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
