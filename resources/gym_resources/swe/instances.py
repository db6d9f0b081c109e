"""An instance: a repository at a commit, an issue, and the tests that decide whether the issue is solved.

It runs in the container of an image, or, with ``files``, in a sandbox on a repository that the row holds.
"""

from __future__ import annotations

from typing import Any

import msgspec
from gym_runtime import Task
from gym_runtime.messages import CreateParams
from gym_sandbox import Container, Limits, image_name

from gym_resources.swe import specs

LIMITS = Limits(
    cpu_s=3600,
    memory_bytes=8 << 30,
    file_bytes=256 << 20,
    disk_bytes=512 << 20,
    open_files=4096,
    processes=512,
    output_bytes=2 << 20,
)
LOCAL_LIMITS = Limits(memory_bytes=1 << 30, file_bytes=16 << 20, disk_bytes=64 << 20)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A test of a local repository: a call, and what it returns or raises.

    Attributes:
        call: a function, as ``package.module.function``.
        arguments: JSON.
        value: what it returns, as JSON.
        error: the name of the exception that it raises instead, or "".
    """

    call: str
    arguments: list[Any]
    value: Any = None
    error: str = ""


def names(tests: str | list[str]) -> list[str]:
    """The names of tests: a list, or one as JSON."""
    return msgspec.json.decode(tests, type=list[str]) if isinstance(tests, str) else tests


class Instance(Task, kw_only=True):
    """The fields of SWE-bench and SWE-Gym, and those of local repositories: a part of a row, or all of it.

    Attributes:
        patch: the perfect patch.
        test_patch: what brings the tests up to date.
        setup_script: runs first in a new container; by default it applies the test patch.
        test_script: runs the tests; by default as it is known of the repository.
        files: a local repository: the texts of its files by their paths.
        checks: the tests of a local repository by their names.
    """

    responses_create_params: CreateParams = CreateParams()
    instance_id: str
    patch: str
    repo: str = ""
    base_commit: str = ""
    version: str = ""
    test_patch: str = ""
    problem_statement: str = ""
    FAIL_TO_PASS: str | list[str]
    PASS_TO_PASS: str | list[str] = []  # noqa: RUF012 - a msgspec field, copied for each
    setup_script: str = ""
    test_script: str = ""
    regression_script: str = ""
    files: dict[str, str] = {}  # noqa: RUF012
    checks: dict[str, Check] = {}  # noqa: RUF012

    def __post_init__(self) -> None:
        for tests in (self.FAIL_TO_PASS, self.PASS_TO_PASS):
            names(tests)  # refuses what is no list
        if bool(self.files) != bool(self.checks):
            raise ValueError("a local repository needs both 'files' and 'checks'")

    @property
    def local(self) -> bool:
        return bool(self.files)

    @property
    def fail_to_pass(self) -> list[str]:
        return names(self.FAIL_TO_PASS)

    @property
    def pass_to_pass(self) -> list[str]:
        return names(self.PASS_TO_PASS)

    def container(self, image: str) -> Container:
        """A container of its own, not started; ``image`` is not used for a local repository."""
        if self.local:
            return Container(directory="testbed", limits=LOCAL_LIMITS)
        return Container(image_name(image), directory=specs.DIRECTORY, limits=LIMITS)
