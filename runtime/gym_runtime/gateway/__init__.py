"""The gateway: models for agents that know nothing of this runtime, over HTTP, with every call captured.

A harness, which is any program with the `openai` or `anthropic` client or one like them, is told a base
URL and a key. What it asks in one of three dialects becomes a `ModelCall`, goes to a model pool, and comes
back in the same dialect, as a stream if that was asked for. `server` holds the HTTP side, `responses`,
`chat` and `messages` the dialects, `capture` what is remembered of each rollout, `transcript` the rollout
that a harness's calls amount to, `entry` and `recording` the files, which the ``record`` and ``replay``
adapters share.
"""

from gym_runtime.gateway.admission import Admission as Admission
from gym_runtime.gateway.listener import serving as serving
from gym_runtime.gateway.server import Gateway as Gateway
from gym_runtime.gateway.server import Question as Question
