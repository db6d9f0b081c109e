"""The client at a prompt and in an editor: names complete, keywords are checked, flags are named alike."""

from __future__ import annotations

import json
import re
import rlcompleter
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import gym_runtime
import gym_signal
import pytest
from gym_runtime.client import Client, connect
from gym_runtime.errors import UsageError
from gym_runtime.messages.rollout_keywords import RolloutKeywords
from gym_runtime.messages.rollout_settings import RolloutSettings, Sampling

ROOT = Path(__file__).parents[3]
GOOD = """
from typing import Any

from gym_runtime import BrokerError, connect, connect_sync
from gym_runtime.training import StandingRun
from gym_signal import signal_batches

gym = connect(model="openai/m", environments=["mcqa"], workers=2, concurrency=8, hosted=True)
blocking = connect_sync(model="openai/m", environments="mcqa")
gym.rollouts([], repeats=2, return_token_ids=True, timeout=3, stop=["a"], logit_bias={"1": 1.0})
gym.rollouts([], timeout_s=3.5)
gym.groups([], temperature=0.5, durability="result", reasoning_effort="low", seed=1)
blocking.rollouts([], repeats=2, tool_choice="auto")
blocking.groups([], on_failure="mask", roles={"judge": "judge"})
blocking.publish([], max_turns=3)
signal_batches(gym, [], want=2, repeats=4, temperature=0.5, max_turns=3)
settings: dict[str, Any] = {}
gym.rollouts([], **settings)


async def one(run: StandingRun) -> None:
    await run.rollout({}, temperature=0.5)
    async with gym.standing_run(environment="mcqa", max_turns=3):
        await gym.run("r1")
"""
BAD = {
    "gym.rollouts([], repeat=2)": "repeat",
    'gym.rollouts([], repeats="2")': "repeats",
    "gym.groups([], temprature=0.5)": "temprature",
    'gym.groups([], durability="turns")': "durability",
    "gym.publish([], return_token_ids=1.5)": "return_token_ids",
    "gym.standing_run(timeout='1 h')": "timeout",
    "signal_batches(gym, [], want=2, max_turn=3)": "max_turn",
    "gym.run(3)": "run",
    "blocking.rollouts([], max_turn=2)": "max_turn",
    "blocking.groups([], seed='x')": "seed",
    "connect(modle='openai/m')": "modle",
    "connect(concurrency='8')": "concurrency",
    "connect_sync(worker=2)": "worker",
}


@pytest.mark.slow
def test_a_type_checker_knows_the_keywords(tmp_path: Path) -> None:
    pytest.importorskip("pyright", reason="needs pip install 'gym-runtime[dev]'")
    (tmp_path / "used.py").write_text(GOOD + "".join(f"{line}\n" for line in BAD))
    settings = {"extraPaths": [str(ROOT / "runtime")], "pythonVersion": "3.11", "include": ["used.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    checked = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "-p", tmp_path, "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        env={"PATH": str(Path(sys.executable).parent), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )
    first_bad = GOOD.count("\n")
    found: dict[int, str] = {}
    for one in json.loads(checked.stdout)["generalDiagnostics"]:
        line = one["range"]["start"]["line"]
        found[line - first_bad] = found.get(line - first_bad, "") + one["message"]
    assert sorted(found) == list(range(len(BAD))), found
    for number, name in enumerate(BAD.values()):
        assert f'"{name}"' in found[number], found[number]


def completed(text: str, names: dict[str, Any]) -> list[str]:
    """What a prompt of Python shows at Tab."""
    completer = rlcompleter.Completer(names)
    found: list[str] = []
    while (match := completer.complete(text, len(found))) is not None:
        found.append(match.removesuffix(")").removesuffix("("))
    return found


@pytest.mark.parametrize("module", [gym_runtime, gym_runtime.adapters, gym_runtime.training, gym_signal])
def test_tab_lists_the_public_names(module: ModuleType) -> None:
    """Although they are loaded at their first use."""
    names = [f"m.{name}" for name in module.__all__]
    assert set(completed("m.", {"m": module})) == set(names)
    assert set(dir(module)) >= set(module.__all__)


def test_the_public_names_are_few() -> None:
    assert len(gym_runtime.__all__) <= 50


@pytest.mark.slow
def test_tab_in_a_notebook() -> None:
    """As IPython answers it, with and without jedi."""
    interactive = pytest.importorskip(
        "IPython.core.interactiveshell", reason="needs pip install 'gym-runtime[notebook]'"
    )
    code = (
        "import sys\n"
        "from IPython.core.completer import provisionalcompleter\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "shell.run_cell('import gym_runtime')\n"
        "for jedi in (True, False):\n"
        "    shell.Completer.use_jedi = jedi\n"
        "    for asked in ('gym_runtime.con', 'gym_runtime.adapters.Ad', 'gym_runtime.training.adv'):\n"
        "        with provisionalcompleter():\n"
        "            found = shell.Completer.completions(asked, len(asked))\n"
        "            print(sorted(one.text.lstrip('.') for one in found))\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert interactive
    assert said == ["['connect', 'connect_sync']", "['Adapter']", "['advantages']"] * 2


OF_ONE_VALUE = {"agent_options": "--agent-set", "roles": "--role"}
"""Mappings in Python; on the command line NAME=VALUE, again and again."""


def flags() -> set[str]:
    """The flags of ``run`` and ``start``, as the reference has them, which another test compares."""
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    parts = [page.partition(f"\n## {name}\n")[2].partition("\n## ")[0] for name in ("run", "start")]
    return {flag for part in parts for flag in re.findall(r"^\* `(--[\w-]+)", part, re.MULTILINE)}


def test_the_flags_have_the_names_of_the_keywords() -> None:
    known = flags()
    keywords = {*get_type_hints(RolloutKeywords)} & {
        *get_type_hints(RolloutSettings),
        "timeout",
        "call_timeout",
    }
    keywords |= {*get_type_hints(Sampling)}
    keywords -= {"sampling", "timeout_s", "call_timeout_s"}
    keywords |= {*connect.__annotations__} - {"return", "environments", "agents", "on_alarm"}
    keywords |= {"track", "output", "resume", "retry_failed"} & {*Client.rollouts.__annotations__}
    missing = {
        name for name in keywords if OF_ONE_VALUE.get(name, "--" + name.replace("_", "-")) not in known
    }
    assert not missing
    assert {"return_token_ids", "concurrency", "timeout", "track"} <= keywords


def test_names_of_flags_and_a_former_name_work() -> None:
    said = RolloutSettings().with_keywords({"timeout": 3.0, "call_timeout": 2.0, "return_tokens": True})
    assert said == RolloutSettings(timeout_s=3.0, call_timeout_s=2.0, return_token_ids=True)
    assert said == RolloutSettings(timeout=3.0, call_timeout=2.0, return_token_ids=True)  # pyright: ignore
    for setting, message in {
        "durability": "durability is [4]; it must be one of turn, result",
        "repeats": "repeats is [4]; it must be a whole number or a mapping or None",
        "return_token_ids": "return_token_ids is [4]; it must be True or False",
    }.items():
        with pytest.raises(UsageError, match=re.escape(message)):
            RolloutSettings().with_keywords({setting: [4]})
    assert said.sampling == {}
    with pytest.raises(UsageError, match="timeout and timeout_s are the same setting"):
        RolloutSettings().with_keywords({"timeout": 3.0, "timeout_s": 4.0})
    with pytest.raises(UsageError, match="timeout_s is -1; it must be more than 0"):
        RolloutSettings().with_keywords({"timeout": -1})
