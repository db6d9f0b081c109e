"""Customers of any company, served in conversation with tools; models play the customer and the tools.

A row has a company's ``policy``, its ``tools`` with JSON schemas of what they take and answer (``returns``),
and a ``customer_scenario``. A model in the role ``user`` plays the customer, who sees what is said and not
the calls; one in the role ``tool_simulator`` answers each call by a JSON value that meets ``returns``. The
customer speaks first, unless the row brings a conversation to go on with. It ends when the customer writes
``###STOP###`` or ``###TRANSFER###``, or the agent that it hands over to a human agent.

An unknown tool, arguments that do not meet a schema, or an answer that neither says nor calls anything ends
it with a reward of 0, named in ``invalid_reasons``; so does the limit of 50 answers (``excessive_length``).
Without ``parallel_tool_calls`` the first call of an answer is carried out. What came to its end is judged by
a model in the role ``judge``: each message of the customer and answer of a tool, then each message and call
of the agent, then the agent's work as a whole, which alone is asked with ``--set
verification_type=combined``. The reward is 1 if all holds, else 0. With ``--set
enforce_transfer_ground_truth=true`` it is 0 without a question where the agent hands a customer over whose
scenario is not ``outside_policy_scope``, or keeps one whose is.

Rows and the order of the questions are those of NeMo Gym's environment of this name; prompts and rows here
are our own. Different on purpose: where the customer or a tool is at fault, the rollout is a failure of that
role, where there it is worth 0 (``user_failure``, ``tool_failure``). Not here: the pipeline that makes such
rows. Source: the documentation of github.com/NVIDIA-NeMo/Gym's ``conversational_tool_use_simulation``.
"""

from __future__ import annotations

from typing import Any, Literal

from gym_runtime import Environment, Episode, Reply, Step, TaskError, Verdict
from gym_runtime.messages import FunctionCall, decode_items

from gym_resources.judging.asking import JudgedTask
from gym_resources.simulated_service.messages_judged import Said, ServiceJudging, events, written
from gym_resources.simulated_service.players import (
    SIGNALS,
    TRANSFER,
    ServiceTool,
    customer_says,
    fault,
    told,
    tool_answers,
)

HANDED_OVER = "you are being transferred to a human agent"
ONE_CALL = "Not carried out: one call at a time."


class ServiceCase(JudgedTask, kw_only=True):
    """A customer's case.

    Attributes:
        customer_scenario: who the customer is and what it wants, in fields of any names.
    """

    policy: str
    tools: list[ServiceTool]
    customer_scenario: dict[str, Any]
    verification_type: Literal["message", "combined"] = "message"
    enforce_transfer_ground_truth: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({tool.name for tool in self.tools}) < len(self.tools):
            raise ValueError("two of the 'tools' have the same name")
        if not told(self.customer_scenario):
            raise ValueError("'customer_scenario' says nothing of the customer")


class ServiceConversation(Episode[ServiceCase]):
    async def open(self) -> None:
        self.by_name = {tool.name: tool for tool in self.task.tools}
        self.said = events(decode_items(self.task.responses_create_params.input_items()))
        self.begin = len(self.said)
        self.turn = self.said[-1].speaker if self.said else "agent"
        if self.turn == "call":
            raise TaskError("the input ends with a call that nothing answers")
        if not self.task.responses_create_params.tools:
            self.offered_tools = [tool.definition() for tool in self.task.tools]
        self.invalid, self.signal = "", ""

    async def reset(self) -> str | None:
        return await self._customer(first=not self.said) if self.turn == "agent" else None

    async def step(self, reply: Reply) -> Step:
        texts = events(reply.messages)
        self.said += texts
        if reply.function_calls:
            return await self._called(reply.function_calls)
        if not texts:
            return self._refused("empty_message")
        if HANDED_OVER in written(texts).lower():
            self.signal = TRANSFER
            return Step(terminated=True)
        said = await self._customer()
        return Step(terminated=True) if self.signal else Step(observation=said)

    async def verify(self, reply: Reply) -> Verdict:
        reason = self.invalid or ("" if self.signal else "excessive_length")
        scenario, fields = self.task.customer_scenario, dict[str, Any]()
        if not reason and self.task.enforce_transfer_ground_truth:
            wanted = scenario.get("outside_policy_scope") is True
            reason = "" if wanted == (self.signal == TRANSFER) else "transfer_mismatch"
        if not reason:
            judging = ServiceJudging(
                self.models.judge, self.task, self.task.policy, told(scenario), self.said, self.begin
            )
            by_message = self.task.verification_type == "message"
            reason = await (judging.by_message() if by_message else judging.as_a_whole())
            fields = judging.fields()
        fields["invalid_reasons"] = [reason] if reason else []
        fields["failure_label"] = "agent_failure" if reason else None
        return Verdict(float(not reason), fields=fields)

    async def _called(self, calls: list[FunctionCall]) -> Step:
        parallel = self.task.responses_create_params.parallel_tool_calls
        answers = {call.call_id: ONE_CALL for call in calls}
        for call in calls if parallel else calls[:1]:
            tool = self.by_name.get(call.name)
            wrong = "unknown_tool" if tool is None else ""
            if tool is not None and await fault(call.arguments or "{}", tool.parameters or tool.params):
                wrong = "invalid_tool_arguments"
            if tool is None or wrong:
                return self._refused(wrong)
            text, before = f"{call.name}({call.arguments})", written(self.said)
            answers[call.call_id] = await tool_answers(
                self.models.tool_simulator, tool, text, self.task.policy, self.task.customer_scenario, before
            )
            self.said += [Said("call", text), Said("tool", answers[call.call_id])]
        return Step(tool_outputs=answers)

    async def _customer(self, *, first: bool = False) -> str:
        said = await customer_says(self.models.user, self.task.customer_scenario, self.said, first=first)
        self.signal = next((signal for signal in SIGNALS if signal in said), "")
        self.said.append(Said("customer", said))
        return said

    def _refused(self, reason: str) -> Step:
        self.invalid = reason
        return Step(terminated=True)


environment = Environment(
    resource=ServiceConversation,
    description="Serve customers of any company by its policy; models play the customer and the tools.",
    domain="agent",
    max_turns=50,
    roles=("user", "tool_simulator", "judge"),
    agent_refs=("conversational_tool_use_agent",),
    extra="structured-outputs",
    data_license="Apache-2.0",
)
