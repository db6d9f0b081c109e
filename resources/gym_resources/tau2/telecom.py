"""A conversation in which the customer has tools too: it operates a telephone, as the agent tells it.

A model in the role ``user`` plays the customer. It gets the tools of `handset.Handset`, whose calls the agent
does not see; what it says reaches the agent as the user's message.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import msgspec
from gym_runtime import Episode, Prompt, Reply, Step, TaskError, ToolError, Verdict
from gym_runtime.environment import collect_tools
from gym_runtime.errors import ModelUnavailable
from gym_runtime.messages import FunctionCall

from gym_resources.judging.texts import message_lines
from gym_resources.tau2 import published
from gym_resources.tau2.conversation_verdict import check, verdict
from gym_resources.tau2.criteria import FAILURES, SceneCall
from gym_resources.tau2.handset import Handset
from gym_resources.tau2.handset_scene import HandsetScene
from gym_resources.tau2.phone import Phone
from gym_resources.tau2.provider import Provider, ProviderScene
from gym_resources.tau2.shared_records import Records
from gym_resources.tau2.task import ServiceTask

MOST_CALLS, TRIES, MOST_SILENCES = 20, 3, 4
PERSON = Prompt("""\
You play a customer who talks to an agent of a telephone company. You are not the agent: do not offer help.
The agent's messages reach you as the messages of this conversation. You have tools, which are your telephone.

Who you are: {persona}
What you want: {goal}

- In each turn either say one short thing, in the customer's own words, or call one tool; never both.
- Call a tool only if the agent asks for it, or to answer what the agent asks. If it asks for several things
  at once, say that you do one after the other. The agent sees what you say, not your calls.
- What you say about the telephone is what the tools answered. Do not make facts up: what stands neither above
  nor in an answer, you do not know.
- Say what is needed when it is needed, and not everything at once.
- When you have what you want, write {stop} and nothing else.
""")


class TelecomTask(ServiceTask, kw_only=True):
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

    async def call(self, side: type, target: object, name: str, arguments: str) -> str:
        """The answer to a call of one of a class's tools, and what follows from it on both sides."""
        tool = tools(side).get(name)
        said = "Error: there is no such tool" if tool is None else await tool.call(target, arguments)
        self.provider.tell(self.phone)
        return said

    async def run(self, call: SceneCall) -> str:
        """The answer of a function that a task names.

        Raises:
            TaskError: no such function exists, or it refuses the arguments.
        """
        arguments = msgspec.json.encode(call.arguments).decode()
        on_phone = call.env_type == "user"
        kind, target = (HandsetScene, self.handset) if on_phone else (ProviderScene, self.provider)
        said = await self.call(kind, target, call.func_name, arguments)
        if said.startswith(FAILURES):
            raise TaskError(f"'{call.func_name}' of the task: {said}")
        return said

    @property
    def state(self) -> tuple[Any, Phone]:
        return self.records.changed(), self.phone


class Telecom(Episode[TelecomTask]):
    async def open(self) -> None:
        check(self.task, self.models.get("judge"))
        for action in self.task.criteria.actions or []:
            if action.name not in tools(Handset if action.requestor == "user" else Provider):
                raise TaskError(
                    f"'evaluation_criteria.actions': the {action.requestor} has no '{action.name}'"
                )
        self.offered_tools = [tool.definition() for tool in tools(Provider).values()]
        self.side = await self._set_up()
        user = self.task.simulated_user
        self.person = PERSON.fill(persona=user["persona"], goal=user["goal"], stop=self.task.signals[0])
        self.heard: list[dict[str, Any]] = [{"role": "user", "content": published.GREETING}]
        self.calls: list[FunctionCall] = []
        self.silences, self.signal = 0, ""

    async def reset(self) -> str:
        said = await self._answer()
        for signal in self.task.signals:
            said = said.replace(signal, "")
        self.signal = ""
        return said.strip() or str(self.task.simulated_user["goal"])

    async def step(self, reply: Reply) -> Step:
        if reply.function_calls:
            answers: dict[str, str] = {}
            for call in reply.function_calls:
                said = await self.side.call(Provider, self.side.provider, call.name, call.arguments)
                answers[call.call_id] = said
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
            state["db"] = self.side.state == (await self._expected()).state
        if "ENV_ASSERTION" in wanted.reward_basis:
            asked = [(one, await self._holds(one)) for one in wanted.env_assertions or []]
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
        offered = [tool.definition() for tool in tools(Handset).values()]
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
                output = await self.side.call(Handset, self.side.handset, call.name, call.arguments)
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

    async def _set_up(self) -> Side:
        try:
            side = Side(self.task)
        except ToolError as error:
            raise TaskError(f"'database': {error}") from error
        for call in self.task.initial.initialization_actions or []:
            await side.run(call)
        return side

    async def _expected(self) -> Side:
        """Both sides after the expected calls; one that fails changes nothing, as for the authors."""
        gold = await self._set_up()
        for action in self.task.criteria.actions or []:
            arguments = msgspec.json.encode(action.arguments).decode()
            if action.requestor == "user":
                await gold.call(Handset, gold.handset, action.name, arguments)
            else:
                await gold.call(Provider, gold.provider, action.name, arguments)
        return gold

    async def _holds(self, assertion: SceneCall) -> bool:
        return await self.side.run(assertion) == "true"


@cache
def tools(side: type) -> dict[str, Any]:
    """The tools of a class, by their names."""
    return collect_tools(side)
