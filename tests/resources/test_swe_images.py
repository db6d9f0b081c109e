"""Software engineering in containers of an image: the image is made here (`runtime.sandbox.images`)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from gym_runtime.errors import ResourceError
from gym_sandbox import container_engines
from resources.judging import ROWS, judge
from sandbox import images

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]
MAKE = """cd /testbed && mkdir -p tests && git init -q .
printf 'def add(a, b):\\n    return a + b + 1\\n' >abacus.py
git add -A && git -c user.name=g -c user.email=g@g commit -qm base
"""
TEST = """cd /testbed && python3 - <<'END'
from abacus import add
for name, passed in (("test_zero", add(0, 0) in (0, 1)), ("test_add", add(1, 2) == 3)):
    print("PASSED" if passed else "FAILED", f"tests/test_abacus.py::{name}")
print("===== 2 passed in 0.01s =====")
END
"""


@pytest.fixture(params=["podman", "docker"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[images.Engine]:
    found = images.engine(request.param)
    if found.refusal:
        pytest.skip(found.refusal)
    for name, value in {**found.variables, container_engines.SETTING: found.name}.items():
        monkeypatch.setenv(name, value)
    container_engines.counts.cache_clear()
    yield found
    container_engines.counts.cache_clear()


def row(mode: str = "eval", **instance: Any) -> bytes:
    first = json.loads((ROWS / "swerl_gen.jsonl").read_bytes().splitlines()[0])
    scripts = {"setup_script": MAKE, "test_script": TEST, "regression_script": MAKE}
    own = {"instance": {**first["instance"], **scripts, **instance}, "mode": mode}
    return json.dumps({**first, **own, "metadata": {**first["metadata"], "image": images.NAME}}).encode()


def reply(line: str) -> str:
    edit = f"### abacus.py\n<<<<<<< SEARCH\n    return a + b + 1\n=======\n{line}>>>>>>> REPLACE"
    return f"<solution>\n```python\n{edit}\n```\n</solution>"


@pytest.mark.parametrize(
    ("line", "reward"),
    [
        ("    return a + b\n", 1.0),
        ("    return a - b\n", 0.0),
        ("    print('PASSED tests/test_abacus.py::test_add')\n    return 0\n", 0.0),
        ("    import os; os._exit(0)\n", 0.0),
    ],
)
async def test_the_tests_of_an_image_decide(engine: images.Engine, line: str, reward: float) -> None:
    verdict = await judge("swerl_gen", row(), reply(line))
    assert verdict.reward == reward, verdict.fields


async def test_a_set_up_that_fails_is_no_reward(engine: images.Engine) -> None:
    with pytest.raises(ResourceError, match="set-up of gym__abacus-1 failed"):
        await judge("swerl_gen", row(setup_script="exit 1"), reply("    return a + b\n"))


async def test_the_perfect_patch_of_a_row_of_swe_gyms_form(engine: images.Engine) -> None:
    first = json.loads((ROWS / "mini_swe_agent.jsonl").read_bytes().splitlines()[0])
    own = {"image_name": images.NAME, "setup_script": MAKE, "test_script": TEST, "run_golden": True}
    verdict = await judge("mini_swe_agent", json.dumps({**first, **own}).encode())
    assert verdict.reward == 1.0, verdict.fields
    left = engine.run("ps", "--all", "--format", "{{.Names}}").stdout.split()
    # Others test beside this process.
    assert not [name for name in left if name.startswith(f"gym-{os.getpid()}-")]
