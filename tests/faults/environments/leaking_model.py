"""A model adapter that some conversations cancel, as `leaking` does."""

from gym_models import scripted
from gym_runtime.messages.calls import ModelAnswer, ModelCall
from gym_runtime.workers.adapter import CallContext
from leaking import leak


class Adapter(scripted.Adapter):
    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        said = bytes(call.input[0])
        for way in ("task", "self", "all", "deaf"):
            if f"leak {way}".encode() in said:
                await leak(way)
        return await super().respond(call, context)
