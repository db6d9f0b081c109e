"""What counts as the same input, when inputs that kill their verifiers are refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from gym_runtime.environment.isolated import verify_isolated
from gym_runtime.errors import ResourceError

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(60)]

MODULE = '''"""Dies when it is told to."""

import os

from gym_runtime import Environment, Reply, Task, Verdict


async def verify(task: Task, reply: Reply) -> Verdict:
    if reply.text == "die":
        os._exit(7)
    return Verdict(1.0)


environment = Environment(resource=verify, description="Dies.", domain="other", isolated=True)
'''
ROW = b'{"responses_create_params": {"input": "go"}}'


def answer(name: str, text: str) -> bytes:
    """A response as engines give it: with its own names."""
    item = {"type": "message", "id": f"msg_{name}", "role": "assistant", "content": text}
    return msgspec.json.encode({"id": f"resp_{name}", "created_at": len(name), "output": [item]})


async def test_the_same_answer_in_another_rollout_is_the_same_input(tmp_path: Path) -> None:
    module = tmp_path / "dying.py"
    module.write_text(MODULE)
    for name in ("a", "bb"):
        with pytest.raises(ResourceError, match="the process that verified died"):
            await verify_isolated(str(module), ROW, answer(name, "die"), 15)
    with pytest.raises(ResourceError, match="quarantined"):
        await verify_isolated(str(module), ROW, answer("ccc", "die"), 15)
    assert (await verify_isolated(str(module), ROW, answer("d", "live"), 15)).reward == 1.0
