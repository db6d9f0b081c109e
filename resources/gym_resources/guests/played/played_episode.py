"""The worker's side of a guest that is Python code: an episode whose steps are played in forks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from gym_runtime import Episode, Reply, ResourceError, Step, Task, Verdict, run_isolated
from gym_runtime.messages import FunctionCallOutput, Item, Message

from gym_resources.guests.played.fork_messages import POLICY, Given, Played

PLAY_LIMIT_S = 60.0
"""The processor time that playing a rollout to its present end may take."""

SAMPLING = frozenset({"max_output_tokens", "temperature", "text", "top_p"})
"""What a fork, in which a model's text may have been executed, may say of a role's sampling."""

Play = Callable[[str, bytes, list[Given], bool], Played]
"""``play(address, row, given, cut)``"""


class PlayedEpisode(Episode[Task]):
    """A rollout of a guest.

    Attributes:
        play: a module's function that plays it in a fork.
        address: the guest's, for `play`.
        imports, sources, folders: as `run_isolated` has them.
    """

    play: ClassVar[Play]
    address: ClassVar[str]
    imports: ClassVar[tuple[str, ...]] = ()
    sources: ClassVar[tuple[Path, ...]] = ()
    folders: ClassVar[Mapping[str, str]] = {}

    async def open(self) -> None:
        self._given: list[Given] = []
        self._digests: list[str] = []
        self._end: Played | None = None

    async def reset(self) -> list[dict[str, Any]]:
        played = await self._play()
        if played.asked is None:
            raise ResourceError(f"{self.address} ends before it has asked the model anything")
        self.offered_tools = played.asked.tools
        return played.asked.items

    async def step(self, reply: Reply) -> Step:
        self._given.append(Given(POLICY, bytes(reply.raw)))
        played = await self._play()
        if played.asked is None:
            self._end = played
            return Step(reward=played.reward, terminated=True)
        return Step(observation=played.asked.items)

    async def verify(self, reply: Reply) -> Verdict:
        """The guest's verdict; a rollout that was ended by a limit is judged as far as it got."""
        if self._end is None:
            if last := after_last_step(reply):
                self._given.append(Given(POLICY, last))
            self._end = await self._play(cut=True)
        end = self._end
        return Verdict(end.reward, components=end.components, fields=end.fields)

    async def _play(self, *, cut: bool = False) -> Played:
        """Play to the policy's next turn or to the end; models in roles are asked meanwhile."""
        while True:
            try:
                played = await run_isolated(
                    type(self).play,
                    self.address,
                    self.row,
                    self._given,
                    cut,
                    timeout_s=PLAY_LIMIT_S,
                    imports=self.imports,
                    sources=self.sources,
                    folders=self.folders,
                )
            except TimeoutError as error:
                raise ResourceError(f"playing {self.address} took longer than {error}") from error
            again = played.digests[: len(self._digests)]
            if again != self._digests[: len(again)] or len(played.digests) < len(self._given):
                raise ResourceError(
                    f"{self.address} does not play the same rollout twice: with the same answers it asked "
                    "something else. What is random in it must come from Python's or numpy's global generator"
                )
            self._digests = played.digests
            asked = played.asked
            if asked is None or asked.role == POLICY:
                return played
            model = self.models.get(asked.role)
            if model is None:
                how = (
                    "--judge PROVIDER/NAME" if asked.role == "judge" else f"--role {asked.role}=PROVIDER/NAME"
                )
                raise ResourceError(
                    f"{self.address} asks a model in the role '{asked.role}', and none is given: {how}",
                    stage=asked.role,
                )
            said = {name: value for name, value in asked.sampling.items() if name in SAMPLING}
            if asked.tools:
                said["tools"] = asked.tools
            answer = await model.ask(asked.items, system="", whole=asked.role == "judge", **said)
            self._given.append(Given(asked.role, bytes(answer.raw)))


def after_last_step(reply: Reply) -> bytes:
    """The model's last answer, if no step has followed it; else nothing.

    The agent takes no step with an answer that stops short.
    """
    items, last = reply.items, len(reply.items)
    while last and not _is_observation(items[last - 1]):
        last -= 1
    if last == len(items):
        return b""
    return msgspec.json.encode(msgspec.structs.replace(reply.response, output=reply.response.output[last:]))


def _is_observation(item: Item) -> bool:
    return isinstance(item, FunctionCallOutput) or (isinstance(item, Message) and item.role != "assistant")
