"""The programs that know NeMo Gym's servers, themselves, in virtual environments of their own.

Each is opt-in by a variable with the path of a Python that has the program.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from subprocess import STDOUT
from typing import Any

import anyio
import pytest
from faces.gym_server.running_server import (
    COUNTER,
    RunningServer,
    choice_row,
    counter_row,
    response,
    running_server,
)
from gym_data.web.listener import serving
from gym_faces.gateway.gateway_server import Gateway
from gym_faces.gateway.model_pools import Question
from gym_faces.gym_server.agent_directory import agents_yaml
from gym_models.scripted import Adapter
from gym_runtime.adapters import CallContext, ModelAnswer, ModelSettings
from gym_runtime.messages.rollout_settings import RolloutSettings

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(180)]
CLIENTS = Path(__file__).with_name("clients")
TOKENS = RolloutSettings(return_token_ids=True)


def needs(variable: str, what: str) -> str:
    """The value of a variable; the test is skipped without it."""
    if not (value := os.environ.get(variable)):
        pytest.skip(f"needs {variable}: {what}")
    return value


def nemo_gym() -> str:
    return needs("NEMO_GYM_PYTHON", "a Python with nemo-gym 0.7")


async def run(folder: Path, *command: str | Path, **variables: str) -> str:
    done = await anyio.run_process(
        [str(part) for part in command],
        cwd=folder,
        stderr=STDOUT,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONUNBUFFERED": "1", **variables},
    )
    said = done.stdout.decode()
    assert done.returncode == 0, said
    return said


def results(said: str) -> list[Any]:
    """What a program of `clients` has printed."""
    parts = said.split("RESULT ")[1:]
    return [json.JSONDecoder().raw_decode(part)[0] for part in parts]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def port(here: RunningServer) -> int:
    return int(here.url.rpartition(":")[2])


async def test_nemo_gyms_own_collection(tmp_path: Path) -> None:
    gym = Path(nemo_gym()).with_name("gym")
    rows = write(tmp_path / "rows.jsonl", [counter_row(), counter_row(expected_count=5)])
    async with running_server() as here:
        head = f"+head_server={{host:127.0.0.1,port:{port(here)}}}"
        arguments = ("eval", "run", "--no-serve", "-i", rows, "-o", "out.jsonl", "--num-repeats", "2", head)
        said = await run(tmp_path, gym, *arguments)
        assert '"mean/reward": 0.5' in said
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        found = {(one["_ng_task_index"], one["_ng_rollout_index"]): one["reward"] for one in lines}
        assert found == {(0, 0): 1.0, (0, 1): 1.0, (1, 0): 0.0, (1, 1): 0.0}
        (metrics,) = json.loads((tmp_path / "out_aggregate_metrics.json").read_text())
        assert metrics["agent_metrics"]["mean/reward"] == 0.5


@pytest.mark.parametrize("key", ["", "s3cret"])
async def test_nemo_gyms_external_agents_as_nemo_rl_uses_them(tmp_path: Path, key: str) -> None:
    python = nemo_gym()
    async with running_server(settings=TOKENS, key=key) as here:
        host = f"gym:{key}@127.0.0.1" if key else "127.0.0.1"
        agents = tmp_path / "agents.yaml"
        agents.write_text(agents_yaml(here.server.served.environments.values(), host, port(here)))
        rows = [counter_row(_rowidx=number, _ng_task_index=0) for number in range(4)]
        said = await run(
            tmp_path, python, CLIENTS / "nemo_gym_external.py", agents, write(tmp_path / "rows.jsonl", rows)
        )
    found = results(said)
    assert sorted(one["row"] for one in found) == [0, 1, 2, 3]
    assert {one["result"]["reward"] for one in found} == {1.0}
    assert len({one["result"]["_gym"]["rollout_id"] for one in found}) == 4


async def test_trls_example(tmp_path: Path) -> None:
    python = nemo_gym()
    example = needs("TRL_NEMO_GYM_EXAMPLE", "train_multi_environment.py of TRL's examples before 1.6")
    rows = write(tmp_path / "rows.jsonl", [counter_row(), counter_row(expected_count=5)])
    scripted: Any = Adapter(ModelSettings.parse("scripted/tool-then-message"))
    async with running_server(settings=TOKENS, engine=scripted) as here:
        said = await run(tmp_path, python, CLIENTS / "trl_example.py", example, port(here), rows, 3)
    (found,) = results(said)
    assert len(found["prompt_ids"]) == 2
    assert found["num_turns"] == [2] * 6
    assert found["env_reward"] == [1.0] * 3 + [0.0] * 3
    for ids, mask, logprobs in zip(
        found["completion_ids"], found["completion_mask"], found["logprobs"], strict=True
    ):
        assert len(ids) == len(mask) == len(logprobs)
        assert 0 < sum(mask) < len(mask)


async def test_verifiers_taskset(tmp_path: Path) -> None:
    python = needs("VERIFIERS_PYTHON", "a Python with verifiers 0.4")
    rows = write(tmp_path / "rows.jsonl", [counter_row()])
    async with running_server() as here:
        for calls, reward in (([["increment_counter", {"count": 1}]], 1.0), ([], 0.0)):
            script = CLIENTS / "verifiers_taskset.py"
            at = f"{here.url}/{COUNTER}"
            (found,) = results(await run(tmp_path, python, script, at, rows, json.dumps(calls), "done"))
            assert found["reward"] == reward
            assert found["metrics"]["expected_count"] == 4.0


async def test_verifiers_own_runner(tmp_path: Path) -> None:
    """Its loop, tool server and scoring, as prime-rl uses them; the harness is a script that `uv` starts."""
    runner = Path(needs("VERIFIERS_PYTHON", "a Python with verifiers 0.4")).with_name("vf-eval")
    if not runner.with_name("uv").exists():
        pytest.skip("needs uv beside VERIFIERS_PYTHON: pip install uv")
    count = {
        "type": "object",
        "properties": {"count": {"type": "integer", "minimum": 1}},
        "required": ["count"],
    }
    tool = {"type": "function", "name": "increment_counter", "strict": True, "parameters": count}
    params = {"input": [{"role": "user", "content": "Bring the counter to 4."}], "tools": [tool]}
    rows = [counter_row(responses_create_params=params, expected_count=number) for number in (4, 5)]
    write(tmp_path / "rows.jsonl", rows)
    scripted: Any = Adapter(ModelSettings.parse("scripted/tool-then-message"))

    async def ask(question: Question) -> ModelAnswer:
        return await scripted.respond(question.call, CallContext(rollout="", attempt=1, deadline_s=0))

    async with running_server() as here, serving(Gateway(ask)) as engine:
        (tmp_path / "eval.toml").write_text(
            f"""
            model = "policy"
            push = false
            output_dir = "outputs"
            client = {{ base_url = "{engine}/v1", api_key_var = "HOME" }}
            env.agent = {{ harness = {{ id = "null" }}, runtime = {{ type = "subprocess" }} }}
            env.taskset.id = "nemo_gym"
            env.taskset.dataset = "rows.jsonl"
            env.taskset.task.resources_url = "{here.url}/{COUNTER}"
            """
        )
        with_uv = {**os.environ, "PATH": f"{runner.parent}{os.pathsep}{os.environ['PATH']}"}
        await run(tmp_path, runner, "@", "eval.toml", "--no-rich", **with_uv)
    (found,) = (tmp_path / "outputs").glob("*/traces.jsonl")
    traces = [json.loads(line)["traces"][0] for line in found.read_text().splitlines()]
    assert [trace["errors"] for trace in traces] == [[], []]
    rewards = {trace["metrics"]["expected_count"]: trace["rewards"]["nemo_gym"]["score"] for trace in traces}
    assert rewards == {4.0: 1.0, 5.0: 0.0}


async def test_a_reward_function_of_unsloths_notebooks(tmp_path: Path) -> None:
    """They post with `requests`, without a session and a cookie; the rows may name no agent."""
    python = nemo_gym()  # for `requests`
    body = {**choice_row(), "response": response({**_said("\\boxed{B}")})}
    del body["agent_ref"]
    script = (
        "import json, requests, sys; answer = requests.post(sys.argv[1], json=json.load(open(sys.argv[2])), "
        "timeout=30); answer.raise_for_status(); print('RESULT ' + json.dumps(answer.json()['reward']))"
    )
    (tmp_path / "body.json").write_text(json.dumps(body))
    async with running_server() as here:
        assert results(await run(tmp_path, python, "-c", script, f"{here.url}/mcqa/verify", "body.json")) == [
            1.0
        ]


def _said(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    about = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    return {**about, "content": content}
