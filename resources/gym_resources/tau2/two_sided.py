"""A conversation in which the customer has tools too; the agent ``step_loop`` leads it.

A model in the role ``user`` plays the customer. The agent does not see the calls of its tools; what it says
reaches the agent as the user's message. A domain is a subclass that makes its `World`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec
from gym_runtime import Episode, Prompt, Reply, Step, TaskError, Verdict
from gym_runtime.environment import collect_tools
from gym_runtime.errors import ModelUnavailable
from gym_runtime.messages import FunctionCall, Item, Message, decode_items

from gym_resources.judging.texts import message_lines
from gym_resources.tau2 import published
from gym_resources.tau2.conversation_verdict import check, verdict
from gym_resources.tau2.criteria import SceneCall, Speaker
from gym_resources.tau2.task import ServiceTask

T = TypeVar("T", bound="TwoSidedTask")
MOST_CALLS, TRIES, MOST_SILENCES = 20, 3, 4
NO_SUCH_TOOL = "Error: there is no such tool"
PERSON = Prompt("""\
You play a customer who talks to an agent of a {company}. You are not the agent: do not offer help.
The agent's messages reach you as the messages of this conversation. You have tools, which are {means}.

Who you are: {persona}
What you want: {goal}

- In each turn either say one short thing, in the customer's own words, or call one tool; never both.
- Call a tool only if {reason}, or to answer what the agent asks. If it asks for several things
  at once, say that you do one after the other. The agent sees what you say, not your calls.
- What you say about {subject} is what the tools answered. Do not make facts up: what stands neither above
  nor in an answer, you do not know.
- Say what is needed when it is needed, and not everything at once.
- When you have what you want, write {stop} and nothing else.
""")


class TwoSidedTask(ServiceTask, kw_only=True):
    """A customer's case. A row without ``simulated_user``, such as NeMo Gym's, has its task's customer."""

    simulated_user: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        super().__post_init__()
        scenario = self.task.user_scenario
        if not self.simulated_user and not scenario:
            raise ValueError("neither 'simulated_user' nor 'task.user_scenario' says who the customer is")
        if not self.simulated_user and scenario:
            self.simulated_user = published.customer(scenario)

    @property
    def items(self) -> Sequence[Item]:
        """What the agent reads first."""
        return decode_items(self.responses_create_params.input_items())


class World(Protocol):
    """The state of both sides, and the tools that change it."""

    @property
    def state(self) -> Any: ...

    def tools(self, speaker: Speaker) -> Mapping[str, Any]:
        """The tools of the agent or of the customer, by their names."""
        ...

    def offered(self, speaker: Speaker) -> Mapping[str, Any]:
        """Those that it knows of and may call in this conversation."""
        ...

    async def call(self, speaker: Speaker, name: str, arguments: str) -> str:
        """The answer to a call; one of an unknown tool is refused."""
        ...

    async def run(self, call: SceneCall) -> str:
        """The answer of a function that sets a task up or asks about its end.

        Raises:
            TaskError: no such function exists, or it refuses the arguments.
        """
        ...


class TwoSided(Episode[T]):
    """Attributes:
    company: what the customer is told that it talks to an agent of; ``means`` what its tools are, ``subject``
        what they tell it about, and ``reason`` when it calls one.
    """

    company: ClassVar[str]
    means: ClassVar[str]
    subject: ClassVar[str]
    reason: ClassVar[str] = "the agent asks for it"

    async def new_world(self) -> World:
        """Both sides as they are before the task is set up.

        Raises:
            TaskError: the row has no such state.
        """
        raise NotImplementedError

    async def open(self) -> None:
        check(self.task, self.models.get("judge"))
        self.world = await self._set_up()
        for action in self.task.criteria.actions or []:
            if action.name not in self.world.tools(action.requestor):
                raise TaskError(
                    f"'evaluation_criteria.actions': the {action.requestor} has no '{action.name}'"
                )
        theirs = {_decode_name(tool).name for tool in self.task.responses_create_params.tools}
        offered = self.world.offered("assistant").items()
        self.offered_tools = [tool.definition() for name, tool in offered if name not in theirs]
        user = self.task.simulated_user
        self.person = PERSON.fill(
            company=self.company,
            means=self.means,
            subject=self.subject,
            reason=self.reason,
            persona=user["persona"],
            goal=user["goal"],
            stop=self.task.signals[0],
        )
        self.heard: list[dict[str, Any]] = [{"role": "user", "content": published.GREETING}]
        self.calls: list[FunctionCall] = []
        self.silences, self.signal = 0, ""

    async def reset(self) -> str | list[dict[str, Any]]:
        said = await self._answer()
        for signal in self.task.signals:
            said = said.replace(signal, "")
        self.signal = ""
        said = said.strip() or str(self.task.simulated_user["goal"])
        if any(isinstance(item, Message) and item.role == "assistant" for item in self.task.items):
            return said
        greeting = {"role": "assistant", "content": published.GREETING}
        return [greeting, {"role": "user", "content": said}]

    async def step(self, reply: Reply) -> Step:
        if reply.function_calls:
            answers = {call.call_id: await self._called("assistant", call) for call in reply.function_calls}
            return Step(tool_outputs=answers)
        text = "\n".join(message_lines(message) for message in reply.messages).strip()
        if not text:
            self.silences += 1
            return Step(truncated=self.silences >= MOST_SILENCES)
        self.silences = 0
        self.heard.append({"role": "user", "content": text})
        said = await self._answer()
        return Step(terminated=True) if self.signal else Step(observation=said)

    async def verify(self, reply: Reply) -> Verdict:
        wanted, state = self.task.criteria, dict[str, bool]()
        if "DB" in wanted.reward_basis:
            state["db"] = self.world.state == (await self._expected()).state
        if "ENV_ASSERTION" in wanted.reward_basis:
            asked = [(one, await self.world.run(one) == "true") for one in wanted.env_assertions or []]
            state["env_assertion"] = all(held == one.assert_value for one, held in asked)
        ended = bool(self.signal)
        judge = self.models.get("judge")
        return await verdict(self.task, reply, judge, state, ended=ended, customers_calls=self.calls)

    async def _answer(self) -> str:
        """What the customer says next, after its calls.

        Raises:
            ModelUnavailable: it called `MOST_CALLS` tools in a row, or said nothing, `TRIES` times.
        """
        tries = 0
        offered = [tool.definition() for tool in self.world.offered("user").values()]
        for _ in range(MOST_CALLS):
            answer = await self.models.user.ask(self.heard, system=self.person, whole=False, tools=offered)
            if not answer.function_calls:
                said = answer.text.rpartition("</think>")[2].strip()
                tries += 1
                if not said and tries < TRIES:
                    continue
                if not said:
                    break
                self.heard.append({"role": "assistant", "content": said})
                self.signal = next((signal for signal in self.task.signals if signal in said), "")
                return said
            for call in answer.function_calls:
                output = await self._called("user", call)
                self.calls.append(call)
                self.heard += [
                    {
                        "type": "function_call",
                        "call_id": call.call_id,
                        "name": call.name,
                        "arguments": call.arguments,
                    },
                    {"type": "function_call_output", "call_id": call.call_id, "output": output},
                ]
        raise ModelUnavailable(
            f"the simulated customer said nothing, {TRIES} times, or called {MOST_CALLS} tools in a row",
            stage="user",
        )

    async def _called(self, speaker: Speaker, call: FunctionCall) -> str:
        """The answer to a call of a tool that was offered."""
        if call.name not in self.world.offered(speaker):
            return NO_SUCH_TOOL
        return await self.world.call(speaker, call.name, call.arguments)

    async def _set_up(self) -> World:
        world = await self.new_world()
        for call in self.task.initial.initialization_actions or []:
            await world.run(call)
        return world

    async def _expected(self) -> World:
        """Both sides after the expected calls; one that fails changes nothing, as for the authors."""
        gold = await self._set_up()
        for action in self.task.criteria.actions or []:
            arguments = msgspec.json.encode(action.arguments).decode()
            await gold.call(action.requestor, action.name, arguments)
        return gold


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


_decode_name = msgspec.json.Decoder(_Named).decode


@cache
def tools(side: type) -> dict[str, Any]:
    """The tools of a class, by their names."""
    return collect_tools(side)


async def called(side: type, target: object, name: str, arguments: str) -> str:
    """The answer to a call of one of a class's tools."""
    tool = tools(side).get(name)
    return NO_SUCH_TOOL if tool is None else await tool.call(target, arguments)
