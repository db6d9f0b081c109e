"""The gateway: models over HTTP for agents that do not use this runtime's API, with every call captured.

A harness, which is any program with the `openai` or `anthropic` client or a similar one, gets a base URL and
a key. Its request in one of three dialects becomes a `ModelCall` to a model pool, and the answer goes back in
the same dialect (`gym_faces.dialects`), as a stream if requested. `gateway_server` has the HTTP side, and
`capture` the calls of each rollout. `gym_faces.recordings` has the transcripts and the files.
"""

from gym_data.web.listener import serving as serving

from gym_faces.gateway.admission import Admission as Admission
from gym_faces.gateway.gateway_server import Gateway as Gateway
from gym_faces.gateway.mcp_api import Called as Called
from gym_faces.gateway.mcp_api import ToolServer as ToolServer
from gym_faces.gateway.mcp_api import content_of as content_of
from gym_faces.gateway.model_pools import Question as Question
