"""A session that cannot be rebuilt: its answers hold what only this one knows."""

import json
import secrets

from gym_runtime import Environment, Reply, Session, Task, Verdict, tool


class Once(Session[Task]):
    async def open(self) -> None:
        self.token = secrets.token_hex(8)

    @tool
    def look(self) -> str:
        """Says who it is."""
        return self.token

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float([json.loads(output.output) for output in reply.tool_outputs] == [self.token]))


environment = Environment(resource=Once, description="Is not replayable.", replayable=False)
