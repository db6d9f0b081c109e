"""Questions that are solved with tools, and judged by the rule of another environment.

A row names the environment whose rule judges it in ``verifier_type`` (``math_with_judge`` if it does not):
any that verifies without a state. Its fields are the row's; its verdict is this environment's, and stands
whole in ``delegated_response``. If it asks a judge, so does this environment.

Without ``tools`` of its own a row offers ``stateful_python_code_exec``, a Python session in a sandbox that
keeps its variables. The tools of every tool pack may stand in a row's ``tools`` as well; they are answered
if the pack's package is installed, else the row is refused. ``gym-runtime ls tools`` lists the packs.

Rows, rewards and fields as of NeMo Gym's environment of this name. There, six of its configurations have
tools only, and no verifier: these are the packs here. Different on purpose: an unknown verifier is a bad
row; a verifier that fails is a failure; calls that ran into their time limit are counted where they are
made (there, ``tool_timeout_count`` is always 0). Times are null where a rollout is verified again.
Source: the rule of NeMo Gym's ``ns_tools``; the tools of NeMo Skills, our own code; the rows are our own.
"""

from __future__ import annotations

from typing import Any

from gym_runtime import Delegate, Environment, Reply, Role, Session, Task, Verdict
from gym_runtime.environment import offered_packs


class ToolsTask(Task):
    verifier_type: str = "math_with_judge"


class ToolsSession(Session[ToolsTask]):
    async def open(self) -> None:
        self.delegate = Delegate(self.task.verifier_type, self.row, self.models)
        for name, pack in offered_packs(self.task.responses_create_params.tools).items():
            self.packs.take(name, pack)

    async def verify(self, reply: Reply) -> Verdict:
        judged = await self.delegate.verify(reply)
        made = len(reply.tool_outputs)
        here = self.packs.calls == made  # else the calls were made elsewhere, by a session that is gone
        fields: dict[str, Any] = {
            **judged.fields,
            "delegated_response": {"reward": judged.reward, **judged.fields},
            "num_tool_calls": made,
            "total_tool_execution_time_seconds": self.packs.seconds if here else None,
            "avg_tool_call_time_seconds": self.packs.seconds / made if here and made else None,
            "tool_timeout_count": self.packs.timeouts if here else None,
            "tool_request_timeout_count": 0 if here else None,
        }
        return Verdict(judged.reward, judged.components, fields)


environment = Environment(
    resource=ToolsSession,
    description="Questions solved with Python and science tools, judged by another environment's rule.",
    domain="agent",
    max_turns=50,
    tool_packs=("stateful_python",),
    roles=(Role(name="judge", optional=True),),
    data_license="Apache-2.0",
    extra="math-verify",
)
