"""The messages between workers, and the OpenAI Responses API objects that they carry.

Every message is a frozen msgspec struct in JSON. Four rules let the format grow: unknown fields are
ignored, new fields have defaults, no field changes its type, no tag is used twice. Rows and response
items travel as `msgspec.Raw`: code that only passes them on does not decode them, so their bytes do not
change.
"""

from gym_runtime.messages.calls import HOSTED_TOOLS as HOSTED_TOOLS
from gym_runtime.messages.calls import OPTIONAL as OPTIONAL
from gym_runtime.messages.items import decode_items as decode_items
from gym_runtime.messages.responses import NULL as NULL
from gym_runtime.messages.responses import IncompleteDetails as IncompleteDetails
from gym_runtime.messages.sampling import BEYOND_RESPONSES as BEYOND_RESPONSES
from gym_runtime.messages.sampling import lay_over as lay_over
from gym_runtime.messages.sampling import refused as refused
