"""A conversation with a simulated user, with tools in between.

A model in the role ``user`` plays the person whom the row's ``simulated_user`` describes::

    {"persona": "an impatient traveller", "goal": "Have order 7 sent to Oslo instead.", "max_messages": 10}

The model's calls are executed as in the tool loop, until it answers with a message instead; the user reads
that and answers in turn. The user knows its persona and goal and what was said, but not the model's
instructions, calls and their outputs; the model does not see persona and goal. If the row's input does not
end with a message of the user, the user speaks first. It ends

1. when the user says one of the ``stop`` signals; this message is not part of the transcript,
2. when an answer of the model is incomplete,
3. as truncated after ``max_turns`` answers of the model, or ``max_messages`` messages of the user.

The response's ``metadata`` says in ``stop_reason`` which signal or limit ended it.

Only the model is trained: the user's messages are in the transcript as input. Any environment with tools
can be used: ``--agent dialogue --role user=PROVIDER/NAME``.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from gym_runtime import Prompt, Role, TaskError
from gym_runtime.adapters import Rollout
from gym_runtime.errors import UNREADABLE, ModelUnavailable
from gym_runtime.messages import Message, decode_items, user_message

from gym_agents.tool_loop import MAX_REASONING_ONLY

TRIES = 3
GREETING = "Hello! How can I help you?"
PERSON = Prompt("""\
You play a person who talks to an assistant. You are not the assistant: do not offer help, and do not solve
the task yourself. The assistant's messages reach you as the messages of this conversation.

Who you are: {persona}
What you want: {goal}

- Write only what this person says next: one short message, in the person's own words.
- Say what is needed when it is needed, and not everything at once.
- Do not make up facts. What is not said above, you do not know; then say that you do not.
- What you want does not change, whatever the assistant says.
- When you have what you want, or it is clear that you will not get it, write {stop} and nothing else.
""")


class SimulatedUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who speaks to the model.

    Attributes:
        stop: the signals that end the conversation; the first is the one that the user is told.
        max_messages: messages of the user, those in the row's input aside.
        sampling: fields of ``responses_create_params`` for the user's model.
    """

    goal: str
    persona: str = "an ordinary customer"
    stop: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("###STOP###",)
    max_messages: Annotated[int, msgspec.Meta(ge=1)] = 20
    sampling: dict[str, Any] = {}


class _Row(msgspec.Struct):
    simulated_user: SimulatedUser


_decode_row = msgspec.json.Decoder(_Row).decode


class Agent:
    """The agent of environments in which a user is simulated."""

    async def run(self, rollout: Rollout) -> None:
        user = Person(rollout)
        stop = await self._talk(rollout, user)
        if not user.has_stopped:
            rollout.truncate(stop)
        rollout.notes["stop_reason"] = stop

    async def _talk(self, rollout: Rollout, user: Person) -> str:
        """The conversation, to its end: the user's signal, or the limit that ended it."""
        if not user.has_spoken:
            rollout.output.append(user_message(await user.opening()))
        reasoning_only = 0
        while True:
            turn = await rollout.respond()
            if turn.incomplete is not None:
                return turn.incomplete
            user.hear(turn.messages)
            reasoning_only = 0 if turn.function_calls or turn.messages else reasoning_only + 1
            if reasoning_only >= MAX_REASONING_ONLY:
                return "reasoning_only"
            said = ""
            if turn.function_calls:
                await rollout.call_tools(turn.function_calls)
            elif turn.messages:
                said = await user.reply()
                if user.has_stopped:
                    return user.signal
            if rollout.max_turns is not None and rollout.turns >= rollout.max_turns:
                return "max_turns"
            if said:
                if user.messages > user.scenario.max_messages:
                    return "max_messages"
                rollout.output.append(user_message(said))


class Person:
    """The simulated user of one rollout, in the role ``user``.

    Attributes:
        messages: how many it has written.
        signal: the stop signal that it said, or nothing.
    """

    def __init__(self, rollout: Rollout) -> None:
        try:
            self.scenario = _decode_row(rollout.task.row).simulated_user
        except UNREADABLE as error:
            raise TaskError(f"the agent 'dialogue' needs the row's 'simulated_user': {error}") from error
        self.messages = 0
        self.signal = ""
        self._model = rollout.model(Role(name="user", sampling=self.scenario.sampling))
        # In the user's eyes the assistant is the one who asks.
        self._heard: list[dict[str, str]] = []
        last = ""
        for item in decode_items(rollout.input):
            if isinstance(item, Message) and item.role in ("user", "assistant"):
                self._add("assistant" if item.role == "user" else "user", item.text)
                last = item.role
        self.has_spoken = last == "user"

    @property
    def has_stopped(self) -> bool:
        """Whether its latest message ends the conversation."""
        return bool(self.signal)

    def hear(self, messages: list[Message]) -> None:
        """Take note of what the model says, before its calls or instead of them."""
        for message in messages:
            self._add("user", message.text)

    async def opening(self) -> str:
        """Its first message; there is nothing to stop yet."""
        said = await self.reply()
        self.signal = ""
        for signal in self.scenario.stop:
            said = said.replace(signal, "")
        return said.strip() or self.scenario.goal

    async def reply(self) -> str:
        """What it says next.

        Raises:
            ModelUnavailable: it said nothing, `TRIES` times.
        """
        scenario = self.scenario
        person = PERSON.fill(persona=scenario.persona, goal=scenario.goal, stop=scenario.stop[0])
        heard = [*self._heard]
        if not heard or heard[0]["role"] == "assistant":  # many chat templates let only the user begin
            heard.insert(0, {"role": "user", "content": GREETING})
        for _ in range(TRIES):
            answer = await self._model.ask(heard, system=person, whole=False)
            said = answer.text.rpartition("</think>")[2].strip()
            if said:
                self.signal = next((signal for signal in scenario.stop if signal in said), "")
                self.messages += 1
                self._add("assistant", said)
                return said
        raise ModelUnavailable(f"the simulated user said nothing, {TRIES} times", stage="user")

    def _add(self, role: str, text: str) -> None:
        """One message; chat templates want the roles in turn, so those of one speaker are put together."""
        if self._heard and self._heard[-1]["role"] == role:
            self._heard[-1]["content"] += f"\n\n{text}"
        elif text:
            self._heard.append({"role": role, "content": text})
