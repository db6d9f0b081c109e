"""Own tasks of inspect_ai, one for each thing that a task may do."""

from __future__ import annotations

from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import Score, accuracy, choice, includes, match, mean, model_graded_qa, scorer
from inspect_ai.solver import generate, multiple_choice, self_critique, system_message, use_tools
from inspect_ai.tool import tool
from inspect_ai.util import sandbox


def samples():
    return MemoryDataset([Sample(input=f"{n}+{n}=", target=str(2 * n)) for n in range(1, 6)])


@tool
def add():
    async def execute(a: int, b: int) -> str:
        """Add two numbers.

        Args:
            a: The first.
            b: The second.
        """
        return str(a + b)

    return execute


@tool
def shell():
    async def execute(command: str) -> str:
        """Run a command.

        Args:
            command: It.
        """
        done = await sandbox().exec(["sh", "-c", command])
        return done.stdout + done.stderr

    return execute


@task
def sums():
    return Task(dataset=samples(), solver=[system_message("Be brief."), generate()], scorer=match())


@task
def odd_ids(twice: bool = False):
    """Ids that inspect reads as patterns, as numbers, or as a task's name with an id."""
    ids = ["xa", "x*", "x[1]", "1", "01", "odd_ids:1", "odd_ids:zz", *(["1"] if twice else [])]
    rows = [Sample(id=one, input=f"sample {one}", target=f"sample {one}") for one in ids]
    return Task(dataset=MemoryDataset(rows), solver=generate(), scorer=includes())


@task
def tools():
    return Task(dataset=samples(), solver=[use_tools(add()), generate()], scorer=includes())


@task
def agent():
    return Task(dataset=samples(), solver=react(tools=[add()]), scorer=includes())


@task
def choices(letters: int = 2):
    rows = [Sample(input="Which?", choices=["no", "yes", "so"][:letters], target="B") for _ in range(5)]
    return Task(dataset=MemoryDataset(rows), solver=multiple_choice(), scorer=choice())


@task
def two_scorers():
    return Task(dataset=samples(), solver=generate(), scorer=[match(), includes()])


@scorer(metrics=[mean()])
def both():
    async def score(state, target):
        text = state.output.completion
        return Score(value={"right": float(target.text in text), "short": float(len(text) < 3)}, answer=text)

    return score


@task
def dict_score():
    return Task(dataset=samples(), solver=generate(), scorer=both())


@scorer(metrics=[mean()])
def dotted():
    async def score(state, target):
        return Score(value={"top.1": 0.5})

    return score


@task
def dotted_key():
    return Task(dataset=samples(), solver=generate(), scorer=dotted())


@scorer(metrics=[accuracy()])
def unscored():
    async def score(state, target):
        return Score(value=float("nan"), explanation="cannot say")

    return score


@task
def nan():
    return Task(dataset=samples(), solver=generate(), scorer=unscored())


@task
def graded():
    return Task(dataset=samples(), solver=generate(), scorer=model_graded_qa())


@task
def limited():
    return Task(dataset=samples(), solver=react(tools=[add()]), scorer=includes(), message_limit=5)


@task
def local():
    return Task(
        dataset=samples(), solver=[use_tools(shell()), generate()], scorer=includes(), sandbox="local"
    )


@task
def needs_docker():
    return Task(dataset=samples(), solver=generate(), scorer=match(), sandbox="docker")


@task
def starts_again():
    return Task(dataset=samples(), solver=[generate(), self_critique()], scorer=match())


@scorer(metrics=[accuracy()])
def raises():
    async def score(state, target):
        raise ValueError("a broken scorer")

    return score


@task
def broken():
    return Task(dataset=samples(), solver=generate(), scorer=raises())
