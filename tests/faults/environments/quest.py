"""Step by step: the verifier wants as many messages in the transcript as steps were taken."""

from gym_runtime import Environment, Episode, Reply, Step, Task, Verdict

STEPS = 6


class Quest(Episode[Task]):
    taken = 0

    async def reset(self) -> str:
        return "Go."

    async def step(self, reply: Reply) -> Step:
        self.taken += 1
        return Step(observation="On.", terminated=self.taken == STEPS)

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.taken == len(reply.messages) == STEPS))


environment = Environment(resource=Quest, description="A walk of six steps.", agent="step_loop")
