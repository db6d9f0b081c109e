"""A model adapter whose process some conversations end."""

import os

from gym_models import scripted
from gym_runtime.messages.calls import ModelAnswer, ModelCall
from gym_runtime.workers.adapter import CallContext


class Adapter(scripted.Adapter):
    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        if any(b"poison" in bytes(item) for item in call.input):
            os._exit(7)
        return await super().respond(call, context)
