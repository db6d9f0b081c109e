"""The messages between workers, and the OpenAI Responses API objects that they carry.

Every message is a frozen msgspec struct in JSON. Four rules let the format grow: unknown fields are
ignored, new fields have defaults, no field changes its type, no tag is used twice. Rows and response
items travel as `msgspec.Raw`: code that only passes them on does not decode them, so their bytes do not
change.
"""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
