"""The tools of ``newton_bench``: one that makes experiments for each module, and a Python session."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Annotated, Any

from gym_runtime import Session, Text, tool
from gym_sandbox import Interpreter
from msgspec import Meta

from gym_resources.judging.asking import JudgedTask
from gym_resources.newton.apparatus import APPARATUS, System
from gym_resources.newton.experiments import measure
from gym_resources.newton.laws import Difficulty, Law, Version, law

PACKAGES = ("numpy", "scipy", "sympy", "pandas")
ALIASES = {"np": "numpy", "scipy": "scipy", "sympy": "sympy", "pd": "pandas"}
EXECUTION_LIMIT_S = 60.0
PREFIX = "run_experiment_"

Code = Annotated[str, Meta(description="The Python code to execute.")]


class NewtonTask(JudgedTask, kw_only=True):
    """A universe's law, and how the model sees it.

    Attributes:
        strict: where a submission is undefined and the true law is not, its value counts as 0.
    """

    id: int | str | None = None
    module_name: str
    difficulty: Difficulty
    system: System
    noise_level: Annotated[float, Meta(ge=0, le=10)]
    law_version: Version
    strict: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.module_name not in APPARATUS:
            raise ValueError(f"'module_name' is {self.module_name!r}; there are: {', '.join(APPARATUS)}")

    @property
    def law(self) -> Law:
        """The true law."""
        return law(self.module_name, self.difficulty, self.law_version)


def _experiment(module: str) -> Callable[..., Any]:
    """The tool of a module: numbers that every experiment of it uses, and others that only some use."""
    apparatus = APPARATUS[module]

    def run(self: Laboratory, **given: float | None) -> dict[str, Any]:
        return {"result": self.experiment(module, given)}

    always = apparatus.always
    kinds: dict[str, Any] = {name: float if name in always else float | None for name in apparatus.sets}
    place = Parameter.POSITIONAL_OR_KEYWORD
    parameters = [Parameter("self", place)]
    for name, kind in kinds.items():
        default = Parameter.empty if name in always else None
        parameters.append(Parameter(name, place, default=default, annotation=kind))
    run.__name__, run.__annotations__ = f"{PREFIX}{module}", kinds
    run.__doc__ = f"Run a physics experiment for the {module} module to gather data."
    vars(run)["__signature__"] = Signature(parameters)
    return tool(run)


class Laboratory(Session[NewtonTask]):
    """The experiments of one universe."""

    judged_by_transcript = True

    async def open(self) -> None:
        self.experiments = 0
        self.interpreter = Interpreter(packages=PACKAGES, aliases=ALIASES)

    def experiment(self, module: str, given: dict[str, float | None]) -> Any:
        """What an experiment shows. The noise depends on the row and on the number of the experiment."""
        task = self.task
        if module != task.module_name:
            return {"error": f"this universe has the apparatus of {task.module_name} only"}
        self.experiments += 1
        universe = (task.id, module, task.difficulty, task.law_version, task.system, task.noise_level)
        return measure(
            module,
            task.system,
            task.law,
            given,
            noise_level=task.noise_level,
            seed=f"{universe} {self.experiments}",
        )

    @tool
    async def execute_python(self, code: Code) -> Text:
        """Execute Python code to analyse data. You have access to numpy, scipy, sympy and pandas."""
        done = await self.interpreter.execute(code, EXECUTION_LIMIT_S)
        return Text(done.stdout + (done.error or ""))

    @tool
    async def end_session(self) -> Text:
        """End the Python session."""
        await self.interpreter.close()
        return Text("Session ended.")

    async def close(self) -> None:
        await self.interpreter.close()


for _module in APPARATUS:
    setattr(Laboratory, f"{PREFIX}{_module}", _experiment(_module))
