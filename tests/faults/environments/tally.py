"""Tools and state: the verifier wants every call of the transcript exactly once in the session."""

from gym_runtime import Environment, Reply, Session, Task, Verdict, tool


class Tally(Session[Task]):
    count = 0

    @tool
    def increment(self) -> str:
        """Counts."""
        self.count += 1
        return str(self.count)

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.count == len(reply.function_calls) == 1))


environment = Environment(resource=Tally, description="Counts its calls.")
