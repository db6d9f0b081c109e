"""What all tests share."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog
from gym_runtime.environment import catalogue
from gym_runtime.system.private_broker import Broker
from gym_testing import virtual_clock
from ports import restartable_broker

pytest_plugins = ["time_limits", "leftovers", "two_environments"]

# What is imported and collected stays, so that looking at it again and again is in vain.
gc.disable()

# Hundreds of programs are started, and where no bytecode may be written, each compiles this package again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# pytest-xdist sets a width, and tables would be cut to it.
os.environ.pop("COLUMNS", None)
os.environ.pop("GYM_NATS_URL", None)
# A busy machine takes longer, which is no fault. Every run draws other examples, so a run needs fewer.
hypothesis.settings.register_profile("tests", deadline=None, max_examples=50)
hypothesis.settings.load_profile("tests")

ROOT = Path(__file__).parents[1]
ALONE = ("tests/docs/test_snippets.py", "tests/resources/test_contract.py")
"""Files whose tests share nothing and take minutes in all: each test may run in another process."""
LONG = (
    "tests/boxes/test_killed_workers.py",
    "tests/browser/test_labels.py",
    "tests/browser/test_pages.py",
    "tests/deploy/test_broker.py",
    "tests/deploy/test_leaf.py",
    "tests/deploy/test_prometheus.py",
    "tests/docs/test_snippets.py::test_page[docs/explanation/",
    "tests/docs/test_snippets.py::test_page[docs/how-to/",
    "tests/docs/test_snippets.py::test_page[docs/tutorials/",
    "tests/docs/test_snippets.py::test_page[runtime/",
    "tests/faults/broker/",
    "tests/faults/permissions/",
    "tests/faults/test_blocked.py",
    "tests/faults/test_clocks.py",
    "tests/faults/test_comparisons.py",
    "tests/faults/test_guests.py",
    "tests/faults/test_killed_programs.py",
    "tests/faults/test_leaked_cancellations.py",
    "tests/faults/test_poison.py",
    "tests/faults/test_preemption.py",
    "tests/faults/test_residue.py",
    "tests/faults/test_secrets.py",
    "tests/hostile/test_intruder.py",
    "tests/hostile/test_replies.py",
    "tests/resources/test_conversational_tool_use_simulation.py",
    "tests/resources/test_error_rates.py::test_rates_are_those_that_are_kept",
    "tests/resources/test_hostile_calls.py",
    "tests/resources/test_math_formal_lean.py",
    "tests/resources/test_swe_environments.py",
    "tests/resources/test_swebench_images.py",
    "tests/runtime/cli/test_dead_engine.py",
    "tests/runtime/cli/test_generate.py",
    "tests/runtime/cli/test_growing.py",
    "tests/runtime/cli/test_interrupted_starts.py",
    "tests/runtime/environment/isolated/test_isolated_limits.py",
    "tests/sandbox/test_container_sigterm.py",
    "tests/testing/alarm/test_watch.py",
    "tests/testing/audit/test_mutants.py",
)
"""What the names of tests begin with that take a third of the time. They run with ``--long``, as in CI, or
where a file is named.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many schedules of faults are played where one follows from a seed (simulation, tests/faults)."""
    group = parser.getgroup("seeds")
    group.addoption("--seeds", type=int, help="how many seeds to play (default: a few)")
    group.addoption("--first-seed", type=int, default=0, help="the first of them")
    group.addoption("--long", action="store_true", help="also the slow tests of LONG, as CI does")
    group.addoption("--soak", action="store_true", help="also what takes hours: cuts, full disks, clusters")


def pytest_configure(config: pytest.Config) -> None:
    """Settings of the whole run."""
    # A shell's background job ignores SIGINT, and so would every program that a test interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # pytest-xdist starts a test that has ended its process again, by default 16 times.
    if getattr(config.option, "maxworkerrestart", "") is None:
        config.option.maxworkerrestart = "2"


def pytest_sessionstart() -> None:
    """What the garbage collector finds while a hostile text is as deep as the stack may be cannot end well.

    Finalizers have no stack left then, and each would fail the test that runs.
    """
    heard = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, RecursionError):
            heard(unraisable)

    sys.unraisablehook = hook


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long is left out unless it is asked for."""
    for item in items:
        if item.nodeid.startswith(LONG) and item.get_closest_marker("slow"):
            item.add_marker("long")
    if config.getoption("--soak"):
        return
    names_a_file = not {Path(given).resolve() for given in config.args} <= {ROOT, ROOT / "tests"}
    marks = ["soak"] if names_a_file or config.getoption("--long") else ["soak", "long"]
    left_out = {item for item in items if any(map(item.get_closest_marker, marks))}
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file run in one process, because they share what it starts; those of ``ALONE`` need not.

    Files start in the order of their names: docs and faults, which take longest, come early. pytest-xdist
    would begin with the files that have the most tests, which are quick.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return nodeid if file in ALONE else file

    config.option.loadscopereorder = False
    return Scheduling(config, log)


def pytest_collection_finish(session: pytest.Session) -> None:
    """The thousands of collected tests stay until the end: the garbage collector need not look at them."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """The loop that workers run on, or that of virtual time where a module has its mark."""
    virtual = request.node.get_closest_marker("virtual_time")
    return virtual_clock.BACKEND if virtual else ("asyncio", {"use_uvloop": True})


@pytest.fixture(scope="module")
async def one_loop(anyio_backend: object) -> AsyncGenerator[None]:
    """One loop for the tests of a module, whose isolated calls then share processes.

    Each process takes up to a second of the processor to start, and ends with its loop.
    """
    yield  # noqa: PT022 - the loop would end with a fixture that returns


@pytest.fixture
def few_objects() -> None:
    """For the check of an environment, which looks for garbage: not among what other tests have imported.

    That takes a tenth of a second of the processor, and here the first look of a process only.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """pytest's, readable for the unprivileged user that judges modules in it where tests run as root."""
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker for one test, to kill, freeze and start again."""
    broker = restartable_broker(tmp_path / "broker")
    broker.start()
    yield broker
    broker.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """No test before this one has left the name of its broker, which commands in this process would join."""
    assert "GYM_NATS_URL" not in os.environ
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """What a command configures in this process, and the files that a test names, are not known to the next.

    A hook, because an automatic fixture costs a tenth of a millisecond in each of many thousand tests.
    """
    try:
        return (yield)
    finally:
        structlog.reset_defaults()
        logging.basicConfig(force=True)
        for files in catalogue._files.values():
            files.clear()
