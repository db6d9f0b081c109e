"""Conversations with customers of the telephone company, who operate a telephone as the agent tells them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
from gym_runtime import TaskError, ToolError

from gym_resources.tau2 import published
from gym_resources.tau2.criteria import FAILURES, SceneCall, Speaker
from gym_resources.tau2.handset import Handset
from gym_resources.tau2.handset_scene import HandsetScene
from gym_resources.tau2.phone import Phone
from gym_resources.tau2.provider import Provider, ProviderScene
from gym_resources.tau2.shared_records import Records
from gym_resources.tau2.two_sided import TwoSided, TwoSidedTask, called, tools


class TelecomTask(TwoSidedTask, kw_only=True):
    """A customer's case.

    Attributes:
        phone: the customer's telephone, with its surroundings; the published one if ``database`` is, too.
    """

    served = "telecom"
    phone: Phone | None = None

    def check_assets(self) -> None:
        super().check_assets()
        self.new_phone()

    def new_phone(self) -> Phone:
        """The telephone as it is before the task is set up."""
        if self.database is None and self.phone is None:
            return published.phone()
        return deepcopy(self.phone) or Phone()


class Side:
    """Both sides of the line, with the functions that set them up and ask about them."""

    def __init__(self, task: TelecomTask) -> None:
        self.records, self.phone = Records(task.tables()), task.new_phone()
        self.provider, self.handset = ProviderScene(self.records), HandsetScene(self.phone)
        self.provider.tell(self.phone)

    def tools(self, speaker: Speaker) -> dict[str, Any]:
        return tools(Handset if speaker == "user" else Provider)

    offered = tools

    async def call(self, speaker: Speaker, name: str, arguments: str) -> str:
        """The answer to a call, and what follows from it on both sides."""
        side, target = (Handset, self.handset) if speaker == "user" else (Provider, self.provider)
        return await self._done(side, target, name, arguments)

    async def run(self, call: SceneCall) -> str:
        arguments = msgspec.json.encode(call.arguments).decode()
        on_phone = call.env_type == "user"
        kind, target = (HandsetScene, self.handset) if on_phone else (ProviderScene, self.provider)
        said = await self._done(kind, target, call.func_name, arguments)
        if said.startswith(FAILURES):
            raise TaskError(f"'{call.func_name}' of the task: {said}")
        return said

    async def _done(self, side: type, target: object, name: str, arguments: str) -> str:
        said = await called(side, target, name, arguments)
        self.provider.tell(self.phone)
        return said

    @property
    def state(self) -> tuple[Any, Phone]:
        return self.records.changed(), self.phone


class Telecom(TwoSided[TelecomTask]):
    company, means, subject = "telephone company", "your telephone", "the telephone"

    async def new_world(self) -> Side:
        try:
            return Side(self.task)
        except ToolError as error:
            raise TaskError(f"'database': {error}") from error
