"""A conversation of several turns, in which a model's calls are played on simulated services.

A turn ends with an answer without calls; then the next user's message follows, or further functions do. More
than `STEPS_AT_MOST` answers with calls in one turn end the conversation, which is then worth 0.
`gym_resources.simulated_apis.played_calls` has the rule.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, cast

from gym_runtime import Episode, Reply, ResourceError, Step, Task, Verdict, run_isolated
from gym_sandbox import ProcessDied

from gym_resources.extract import jsons
from gym_resources.simulated_apis import played_calls
from gym_resources.simulated_apis.api_classes import MODULES, modules
from gym_resources.simulated_apis.played_calls import ApiCall, Scenario

STEPS_AT_MOST = 20
MORE_FUNCTIONS = "I have updated some more functions you can choose from. What about now?"
NO_OBJECT = "Error during execution: the arguments are not a JSON object"
TOO_LONG = "Error during execution: it took too long, or too much memory"
TOO_MANY = "Error during execution: too many calls at once"
CALLS_AT_MOST = 100
CHARACTERS_AT_MOST = 50_000
"""Of a call's name and arguments: all calls so far are played again at each step."""
LONG = f"Error during execution: a call has at most {CHARACTERS_AT_MOST:,} characters"
KILLED_AT_MOST = 3
CALLS_LIMIT_S = 5.0
CHECK_LIMIT_S = 30.0


class ConversationTask(Task, kw_only=True):
    """A conversation.

    Attributes:
        turns: the messages of each turn after the first, which is the row's input.
        added_tools: the tools that a turn adds, by the turn's number; the first is 0.
        expected: the right calls of each turn.
    """

    category: str
    scenario: Scenario
    turns: list[list[dict[str, Any]]]
    added_tools: dict[str, list[dict[str, Any]]] = {}  # noqa: RUF012 - a msgspec field, copied for each
    expected: list[list[ApiCall]]

    def __post_init__(self) -> None:
        unknown = [name for name in self.scenario.classes if name not in MODULES]
        if unknown:
            raise ValueError(f"unknown classes: {', '.join(unknown)}; there are {', '.join(MODULES)}")
        if len(self.expected) != len(self.turns) + 1:
            raise ValueError("'expected' has the calls of the first turn, and of each of 'turns'")


class Conversation(Episode[ConversationTask]):
    async def open(self) -> None:
        self.modules = modules(self.task.scenario.classes)
        self.made: list[list[ApiCall]] = [[]]
        self.steps = 0
        self.ended = ""

    async def step(self, reply: Reply) -> Step:
        if not reply.function_calls:
            return self._next_turn()
        calls: dict[str, ApiCall] = {}
        outputs: dict[str, str] = {}
        for call in reply.function_calls:
            if len(call.name) + len(call.arguments) > CHARACTERS_AT_MOST:
                outputs[call.call_id] = LONG
                continue
            arguments = jsons.loads(call.arguments)
            if not isinstance(arguments, dict):
                outputs[call.call_id] = NO_OBJECT
            elif len(calls) == CALLS_AT_MOST:
                outputs[call.call_id] = TOO_MANY
            else:
                calls[call.call_id] = ApiCall(call.name, cast("dict[str, Any]", arguments))
        outputs |= zip(calls, await self._played(list(calls.values())), strict=True)
        self.steps += 1
        if self.steps > STEPS_AT_MOST:
            self.ended = "too many steps in a turn"
        return Step(tool_outputs=outputs, terminated=bool(self.ended))

    def _next_turn(self) -> Step:
        turn = len(self.made)
        if turn > len(self.task.turns):
            self.ended = "the conversation is over"
            return Step(terminated=True)
        self.made.append([])
        self.steps = 0
        added = self.task.added_tools.get(str(turn), [])
        messages = self.task.turns[turn - 1] or [{"role": "user", "content": MORE_FUNCTIONS}]
        return Step(observation=messages, tools=added)

    async def _played(self, calls: list[ApiCall]) -> list[str]:
        """The answers to calls. Those that never end are left out of what the conversation did."""
        if not calls:
            return []
        said = await self._run(calls)
        if said is not None:
            return said
        if len(calls) == 1:
            return [TOO_LONG]
        found: list[str] = []
        for call in calls:
            one = await self._run([call]) if found.count(TOO_LONG) < KILLED_AT_MOST else None
            found += one or [TOO_LONG]
        return found

    async def _run(self, calls: list[ApiCall]) -> list[str] | None:
        """The answers to calls, which are then part of the conversation; None if the process was killed."""
        before = list(chain(*self.made))
        try:
            said = await run_isolated(
                played_calls.answers,
                self.task.scenario,
                before,
                calls,
                timeout_s=CALLS_LIMIT_S,
                imports=self.modules,
            )
        except TimeoutError:
            return None
        except ResourceError as error:
            if not isinstance(error.__cause__, ProcessDied):
                raise
            return None
        self.made[-1] += calls
        return said

    async def verify(self, reply: Reply) -> Verdict:
        if len(self.made) != len(self.task.expected) or self.steps > STEPS_AT_MOST:
            found = played_calls.Checked(valid=False, problem=self.ended or "unfinished")
        else:
            found = await run_isolated(
                played_calls.checked,
                self.task.scenario,
                self.made,
                self.task.expected,
                timeout_s=CHECK_LIMIT_S,
                imports=self.modules,
            )
        return Verdict(float(found.valid), fields={"checked": found, "predicted_calls": self.made})
