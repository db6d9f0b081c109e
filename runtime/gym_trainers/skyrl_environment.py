"""SkyRL's other direction: its own generator samples, and the environment's tools and verifier are ours.

`GymEnv` is an environment of skyrl_gym, for rows whose environment has tools, steps, or a verifier alone. It
gives up what depends on our own loop: agents, resuming, and failed rollouts. SkyRL's generator has no failed
rollout, so what fails raises and ends the step; it is never a reward of 0. Where that must not happen, use
`gym_trainers.skyrl.GymGenerator`.

Source: skyrl-gym 0.4, ``envs/base_text_env.py``; SkyRL 0.4, ``skyrl_gym_generator.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
from gym_runtime.client import SyncSession
from gym_runtime.messages import chat_messages, response_items
from msgspec import Raw

from gym_trainers.hermes import said, tools_prompt
from gym_trainers.rollout_source import shared_client
from gym_trainers.training_rollouts import ROW, base_class, sole_reward

REMEDY = "use GymGenerator, with seat"


class GymEnv(base_class("skyrl_gym.envs.base_text_env", "BaseTextEnv")):
    """For ``skyrl_gym.register(id="gym_runtime", entry_point=...)``; the column ``gym_row`` holds the row.

    The model calls tools as Qwen and Hermes models do. A turn without a call, or the last one that
    ``generator.max_turns`` allows, ends the rollout, and then the transcript is judged.
    """

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        given = extras or {}
        self.max_turns = int(given.get("max_turns", 1))  # SkyRL's generator.max_turns
        self.turns = 0
        self._row = str(given[ROW])
        self._transcript: list[dict[str, Any]] = []
        self._has_steps = False
        self._held = ExitStack()
        self._session: SyncSession | None = None

    def init(self, prompt: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Open the session; returns the prompt with everything that the model must know of the environment.

        Tools are described in a system message, because SkyRL gives the chat template none.

        Raises:
            GymError: the environment could not open the session.
        """
        self._session = self._held.enter_context(shared_client().session(self._row))
        begun = _messages(self._session.observation)
        self._has_steps = bool(begun)
        told = (
            [{"role": "system", "content": tools_prompt(self._session.tools)}] if self._session.tools else []
        )
        return [*told, *map(dict, prompt), *begun], {}

    def step(self, action: str) -> dict[str, Any]:
        """One turn of the model: the tools' outputs or an observation, and at the end the reward.

        Raises:
            GymError: the environment or its verifier failed; or it trains several seats.
        """
        assert self._session is not None, "SkyRL calls init first"
        self.turns += 1
        answer = said(action, tools=bool(self._session.tools))
        calls = [{"function": call._asdict()} for call in answer.calls]
        items = response_items([{"role": "assistant", "content": answer.text, "tool_calls": calls}])
        observed: list[dict[str, Any]] = []
        done = self.turns >= self.max_turns
        if self._has_steps:
            outcome = self._session.step(items)
            observed, done = outcome.items, done or outcome.terminated or outcome.truncated
        else:
            for item in items:
                if item["type"] == "function_call":
                    output = self._session.call(item["name"], item["arguments"])
                    about = {"type": "function_call_output", "call_id": item["call_id"]}
                    observed.append({**about, "output": output})
            done = done or not observed
        self._transcript += [*items, *observed]
        return {
            "observations": [] if done else _messages(observed),
            "reward": sole_reward(self._session.verify(self._transcript), REMEDY) if done else 0.0,
            "done": done,
            "metadata": {},
        }

    def close(self) -> None:
        """Release the session."""
        self._session = None
        self._held.close()


def _messages(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Items as messages of a role and a text, which is all that SkyRL takes."""
    messages = chat_messages(Raw(msgspec.json.encode(item)) for item in items)
    return [{"role": one["role"], "content": one["content"] or ""} for one in messages]
