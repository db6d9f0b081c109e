# verifiers is not there where types are checked, since it needs more than all other packages together.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
"""Plays an environment of verifiers 0.4, and what is known of it before: its rows, its seats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import anyio
import httpx
import msgspec
import openai
import verifiers.v1 as vf
import verifiers.v1.agent
import verifiers.v1.env
import verifiers.v1.judge
import verifiers.v1.rollout
from gym_runtime import ResourceError, TaskError, UsageError
from verifiers.v1.configs.agent import agent_config_fields

from gym_resources.guests.played import named_code
from gym_resources.guests.played.fork_messages import POLICY, Asked, Given, Played
from gym_resources.guests.played.script import Script, numbers
from gym_resources.guests.played.verifiers_loop import LocalInterception, Loop, no_servers

ROW = "verifiers"
"""The row's field with the data of verifiers' task."""
JUDGE = "judge"
REPLACED = ("null", "bash")
"""The harnesses for which our conversation stands; ``bash`` is what verifiers takes where none is named."""


class Seats(NamedTuple):
    """Who plays: the seat of the policy, and those of models in roles."""

    policy: str
    others: tuple[str, ...]


def load(address: str) -> Any:
    """The environment of an address.

    Raises:
        UsageError: there is no such environment, a setting does not fit, or it needs what guests have not.
    """
    name, settings = named_code.parse(address)
    code = named_code.find(name)
    try:
        return _load(address, name, settings, code)
    except UsageError as error:
        if code is None or not named_code.mentions(code, "def load_environment("):
            raise
        raise UsageError(
            f"{error.message.rstrip('.')}. The module has load_environment: it is for verifiers before 0.4, "
            "whose environments 0.4 cannot run"
        ) from error


def _load(address: str, name: str, settings: dict[str, Any], code: named_code.Code | None) -> Any:
    if code is not None:
        named_code.load(name, code)
    own = settings.pop("env", {})
    try:
        ident = code.module if code else name
        env = vf.load_environment(vf.resolve_env_config({"taskset": {"id": ident, **settings}, **own}))
    except ModuleNotFoundError as error:
        raise UsageError(
            f"there is no taskset '{name}' for verifiers: give the path of its file, or install its package"
        ) from error
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"verifiers:{address}: {' '.join(str(error).split())}") from error
    task = type(env.taskset).task_type()
    if task.NEEDS_CONTAINER:
        raise UsageError(f"verifiers:{address}: {task.__name__} needs a container, which guests have not")
    for name, harness in env.config.agent_harnesses().items():
        if harness.id not in REPLACED:
            raise UsageError(
                f"verifiers:{address}: seat '{name}' has the harness '{harness.id}', and only a conversation "
                "with the task's own tools is played here"
            )
    return env


def seats(env: Any) -> Seats:
    """The seats of an environment, after its ``setup`` has said which are trained.

    Raises:
        UsageError: not exactly one is.
    """
    stand_ins = vf.Agents(env.config, lambda *_: _StandIn())
    setting_up = env.setup(stand_ins)
    try:
        setting_up.send(None)
    except StopIteration:
        pass
    else:
        setting_up.close()
        raise UsageError("the environment's setup awaits something: guests of verifiers must not")
    names = list(agent_config_fields(env.config))
    trained = [name for name in names if getattr(stand_ins, name).trainable]
    if len(trained) != 1:
        said = ", ".join(trained) or "none"
        raise UsageError(f"the environment trains {len(trained)} seats ({said}); a rollout here trains one")
    return Seats(trained[0], tuple(name for name in names if name != trained[0]))


class _StandIn:
    trainable = True


def rows(env: Any, size: int | None) -> Iterator[dict[str, Any]]:
    """The tasks of the environment's dataset as rows, in its order.

    Raises:
        UsageError: they have no end, and ``size`` says none.
    """
    taskset = env.taskset
    if size is None and not taskset.bounded:
        raise UsageError("the taskset has no end; say how many rows: --limit N")
    for task in taskset if size is None else taskset.take(size):
        data = task.data.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        yield {"responses_create_params": {"input": []}, ROW: data}


def play(address: str, row: bytes, given: list[Given], cut: bool) -> Played:
    """Play a rollout, in a fork."""
    script = Script(given, cut=cut)
    return script.play(row, lambda: anyio.run(_play, address, row, script))


async def _play(address: str, row: bytes, script: Script) -> Played:
    env = load(address)
    policy = seats(env).policy
    task = _task(env, row)
    interception = LocalInterception()
    env._interception = interception
    verifiers.v1.rollout.serve_tools = no_servers  # the fork has no other rollout
    verifiers.v1.judge.build_async_openai = lambda config: _judge_client(script)

    def shared() -> list[Any]:
        return env.taskset.toolsets(env.taskset.config)

    class Seat(verifiers.v1.agent._EpisodeAgent):
        """Verifiers' agent of an episode, which runs our loop where its harness would run a program."""

        def __init__(self, config: Any, *, name: str, **rest: Any) -> None:
            plain = config.model_copy(update={"harness": None, "runtime": vf.SubprocessConfig()})
            null = vf.harness_config_type("null")(id="null")
            super().__init__(plain.model_copy(update={"harness": null}), name=name, **rest)
            self.harness = Loop(script, interception, POLICY if name == policy else name, task, shared)

    verifiers.v1.env._EpisodeAgent = Seat
    env._default_harness = vf.harness_config_type("null")(id="null")
    context = vf.ModelContext(model=POLICY, client=vf.EvalClientConfig())
    try:
        await env.start()
        episode = await env.run_episode(task, context)
    finally:
        await env.stop()
    for trace in episode.traces:
        if trace.errors:
            raise ResourceError(_first_line(trace.errors[-1]))
    if not episode.ok:
        raise ResourceError(_first_line(episode.errors[-1]) if episode.errors else "the episode failed")
    (trace,) = [one for one in episode.traces if one.agent.name == policy]
    unscored = [name for name, reward in trace.rewards.items() if reward is None]
    if unscored or not trace.rewards:
        raise ResourceError(f"the environment gave no reward: {', '.join(unscored) or 'it has none'}")
    return Played(
        digests=[],
        reward=float(trace.reward),
        components={name: float(reward.value) for name, reward in trace.rewards.items()},
        fields={**numbers(trace.metrics), "stop_condition": trace.stop_condition},
    )


def _task(env: Any, row: bytes) -> Any:
    task = type(env.taskset).task_type()
    try:
        data = task.data_type().model_validate(msgspec.json.decode(row)[ROW])
    except KeyError as error:
        raise TaskError(f"the row has no field '{ROW}': the data of a task of verifiers'") from error
    except ValueError as error:
        raise TaskError(f"the row's field '{ROW}': {error}") from error
    return task(data, env.taskset.config.task)


def _first_line(error: Any) -> str:
    return f"{error.type}: {error.message}"


def _judge_client(script: Script) -> Any:
    """What a judge asks instead of a server: the model in the role ``judge``."""
    http: Any = httpx.AsyncClient(transport=_Judge(script))
    return openai.AsyncOpenAI(base_url="http://127.0.0.1:9", api_key="-", max_retries=0, http_client=http)


class _Judge(httpx.AsyncBaseTransport):
    def __init__(self, script: Script) -> None:
        self._script = script

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = json.loads(await request.aread())
        sampling = {name: asked[name] for name in ("temperature", "top_p") if asked.get(name) is not None}
        longest = asked.get("max_completion_tokens") or asked.get("max_tokens")
        if longest is not None:
            sampling["max_output_tokens"] = longest
        wanted: dict[str, Any] = asked.get("response_format") or {}
        if wanted.get("type") == "json_schema":
            sampling["text"] = {"format": {"type": "json_schema", **wanted["json_schema"]}}
        said = [{"role": one["role"], "content": one["content"]} for one in asked["messages"]]
        reply = self._script.answer(Asked(role=JUDGE, items=said, sampling=sampling))
        text = reply.all_text if reply else ""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = {"id": "judge", "object": "chat.completion", "created": 0, "model": JUDGE, "choices": [choice]}
        return httpx.Response(200, json=body)
