"""A renderer goes on from the tokens so far where the engine's template would not."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from gym_models.vllm import Adapter
from gym_runtime.errors import UsageError
from models.model_calls import context, model_call
from models.vllm.adapter.adapters import settings
from models.vllm.adapter.test_adapter import continued, ids
from stubs.stub_vllm import StubVllm
from stubs.stub_vocabulary import END

pytestmark = pytest.mark.anyio


class StubRenderer:
    """The stub's template, which keeps the past as it was sampled.

    Args:
        stub: whose words it has.
        says: what it does: ``right``, or how it is wrong.
    """

    stub: StubVllm
    says = "right"

    def __init__(self, _: str) -> None:
        pass

    def render_ids(
        self, messages: Any, *, tools: Any = None, add_generation_prompt: bool = False
    ) -> list[int]:
        if self.says == "raises":
            raise ValueError("what template is this?")
        body = {"messages": messages, "add_generation_prompt": add_generation_prompt}
        found = self.stub._vocabulary.rendered(body)
        return found[1:] if self.says == "other ids" else found

    def bridge_to_next_turn(self, prompt: Any, completion: Any, new: Any, *, tools: Any = None) -> Any:
        if self.says == "no bridge":
            return None
        end = self.stub._vocabulary.tokens([END])[0]
        kept = [*prompt, *completion][self.says == "another past" :]
        assert kept[-1] == end
        newline = self.stub._vocabulary.tokens(["\n"])
        return SimpleNamespace(token_ids=[*kept, *newline, *self.render_ids(new, add_generation_prompt=True)])


def make(model: str) -> StubRenderer:
    assert model == "stub"
    return StubRenderer(model)


@pytest.mark.parametrize("says", ["right", "raises", "other ids", "no bridge", "another past"])
async def test_a_renderer_that_renders_as_the_engine_keeps_a_rollout_one_sequence(
    thinker: StubVllm, says: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(StubRenderer, "stub", thinker, raising=False)
    monkeypatch.setattr(StubRenderer, "says", says)
    options = {"reasoning": "drop", "renderer": f"{__name__}:make"}
    async with Adapter(settings(thinker, options=options)) as adapter:
        call = model_call(return_tokens=True)
        answers = [await adapter.respond(call, context())]
        for _ in range(2):
            call = continued(call, answers[-1], {"role": "user", "content": "Are you sure?"})
            answers.append(await adapter.respond(call, context()))
    goes_on = [ids(new)[0].startswith(ids(old)[1]) for old, new in pairwise(answers)]
    assert goes_on == [says == "right"] * 2
    if says == "right":
        assert thinker.text(thinker.generated[-1][0]).count("<think>") == 2
    warned = "".join(capfd.readouterr()).count("the renderer is not used")
    assert warned == (says in ("raises", "other ids"))


async def test_a_renderer_that_cannot_be_made_is_said_with_the_remedy(thinker: StubVllm) -> None:
    async with Adapter(settings(thinker, options={"renderer": "no_such_module:make"})) as adapter:
        with pytest.raises(
            UsageError, match=r"renderer='no_such_module:make'.*give auto, or MODULE:FUNCTION"
        ):
            await adapter.respond(model_call(return_tokens=True), context())
