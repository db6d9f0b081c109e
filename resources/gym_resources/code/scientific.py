"""One step of a scientific problem: a program, its tests and their targets, of a row or of SciCode's file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime import Asset, Task, TaskError, UsageError
from gym_runtime.assets import find
from gym_sandbox import Limits, Sandbox, python_command

from gym_resources.code.asserted import Asserted, asserted

PACKAGES = ("numpy", "scipy", "sympy", "matplotlib")
LIMITS = Limits(output_bytes=256 << 20)
READ_S = 60.0
TARGETS = Asset(
    name="scicode-targets",
    description="SciCode's test_data.h5, the expected values of its tests",
    licence="Apache-2.0",
    setting="GYM_SCICODE_TARGETS",
    page="https://github.com/scicode-bench/SciCode",
)
FILE = "test_data.h5"
GIVEN = ("13.6", "62.1", "76.3")
"""Steps whose code the authors give."""


def targets_file() -> Path:
    """Where the targets are.

    Raises:
        AssetMissing: the file is missing.
        UsageError: what reads it is not installed.
    """
    if find_spec("h5py") is None:
        raise UsageError('scicode\'s targets are read with h5py: pip install "gym-runtime[sandbox]"')
    [path] = find(TARGETS, "scicode", FILE)
    return path


class SubStep(msgspec.Struct):
    """A step of a problem, with NeMo Gym's names."""

    step_number: str
    function_header: str
    step_description_prompt: str = ""
    step_background: str = ""
    ground_truth_code: str | None = None
    test_cases: list[str] = []
    return_line: str = ""

    def __post_init__(self) -> None:
        if not self.function_header.partition("(")[0].strip():
            raise ValueError(f"the step {self.step_number} has no 'function_header'")

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function_header.partition("(")[0].split()[-1]


class ResearchTask(Task):
    """A problem.

    Attributes:
        targets: the expected values of each step's tests; without it, those of SciCode's file.
    """

    problem_id: str
    sub_steps: list[SubStep]
    required_dependencies: str = ""
    with_background: bool = True
    targets: dict[str, list[Any]] | None = None

    def __post_init__(self) -> None:
        if not self.asked():
            raise ValueError("'sub_steps' has no step that is asked")
        for step in self.sub_steps:
            if step.step_number in GIVEN and not step.ground_truth_code:
                raise ValueError(f"the step {step.step_number} is given, and has no 'ground_truth_code'")
            if not step.test_cases and step.step_number not in GIVEN:
                raise ValueError(f"the step {step.step_number} has no tests")
            if self.targets is not None and len(self.targets.get(step.step_number, ())) != len(
                step.test_cases
            ):
                raise ValueError(f"'targets' has not one for each test of the step {step.step_number}")

    def check_assets(self) -> None:
        if self.targets is None:
            targets_file()

    def asked(self) -> list[SubStep]:
        return [step for step in self.sub_steps if step.step_number not in GIVEN]


async def tested(
    code: str, step: str, tests: Sequence[str], targets: Sequence[Any] | None, limit_s: float
) -> Asserted:
    """What a step's tests say of a program.

    Args:
        targets: of each test, as JSON; None for those of SciCode's file.

    Raises:
        TaskError: the file has no targets of this step.
        AssetMissing, UsageError: as `targets_file`.
    """
    setup = _text("scicode_inside.py")
    if targets is None:
        stored = await _stored(targets_file(), step, len(tests))
        setup += f"\nimport base64, pickle\ntargets = pickle.loads(base64.b64decode({json.dumps(stored)}))\n"
    return await asserted(code, tests, targets=targets or (), setup=setup, limit_s=limit_s, packages=PACKAGES)


async def _stored(path: Path, step: str, count: int) -> str:
    """The targets of a step, which nothing here reads."""
    program = [*python_command(), "-c", _text("hdf5_inside.py"), str(path), step, str(count)]
    async with Sandbox(LIMITS, packages=(*PACKAGES, "h5py"), folders=(str(path.parent),)) as box:
        done = await box.run(program, timeout_s=READ_S)
    if done.exit_code or not done.stdout.isascii():
        said = done.stderr.decode(errors="replace").strip()[-300:]
        raise TaskError(f"{path} has no targets of the step {step}: {said}")
    return done.stdout.decode()


@cache
def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")
