"""Errors keep what they are on their way between workers."""

from __future__ import annotations

import itertools
import re

import msgspec
import pytest
from gym_runtime import errors
from gym_runtime.errors import (
    DeadlineExceeded,
    Fault,
    GymError,
    ModelError,
    ModelUnavailable,
    NoWorker,
    ResourceError,
    RuntimeFault,
    from_fault,
    leaf,
)
from tables import table


def tree(cls: type[GymError], depth: int = 0) -> list[tuple[int, str]]:
    found = [(depth, cls.__name__)]
    for sub in cls.__subclasses__():
        if sub.__module__ == errors.__name__:
            found += tree(sub, depth + 1)
    return found


CLASSES = [vars(errors)[name] for _, name in tree(GymError)]


def test_the_docstring_draws_the_tree_that_exists() -> None:
    lines = (errors.__doc__ or "").splitlines()
    drawn = [re.match(r"    ((?:[│├└─ ]{4})*)(\w+)", line) for line in lines if line.startswith("    ")]
    assert [(len(found[1]) // 4, found[2]) for found in drawn if found] == tree(GymError)


@table("cls", CLASSES)
def test_every_error_survives_the_way_between_workers(cls: type[GymError]) -> None:
    error = cls("what happened: 'ä\n'", stage="tool")
    fault = msgspec.json.decode(msgspec.json.encode(error.fault()), type=Fault)
    back = from_fault(fault)
    assert type(back) is cls
    assert (back.message, str(back), back.stage) == (error.message, error.message, "tool")
    assert (back.kind, back.retryable) == (error.kind, error.retryable)
    assert back.fault() == fault


@table("cls", CLASSES)
def test_every_error_can_be_made_without_a_message(cls: type[GymError]) -> None:
    assert cls().fault() == Fault(kind=cls.kind, name=cls.__name__, retryable=cls.retryable)


def test_whose_fault_and_whether_it_may_pass() -> None:
    assert {cls.__name__: (cls.kind, cls.retryable) for cls in CLASSES} == {
        "GymError": ("runtime", False),
        "UsageError": ("usage", False),
        "NotThereYet": ("usage", True),
        "TaskError": ("task", False),
        "ModelError": ("model", False),
        "ModelRefused": ("model", False),
        "ModelUnavailable": ("model", True),
        "ModelLimited": ("model", True),
        "UnusableAnswer": ("model", False),
        "ConversationUnknown": ("model", True),
        "StaleWeights": ("model", True),
        "ResourceError": ("resource", False),
        "AssetMissing": ("resource", False),
        "ReplayDiffers": ("resource", False),
        "ServiceUnavailable": ("resource", False),
        "SessionLost": ("resource", True),
        "TransportError": ("transport", True),
        "NoWorker": ("transport", True),
        "Busy": ("transport", True),
        "ConnectionLost": ("transport", True),
        "BrokerError": ("transport", False),
        "PayloadTooLarge": ("transport", False),
        "DeadlineExceeded": ("deadline", False),
        "Fenced": ("runtime", False),
        "JournalMismatch": ("runtime", True),
        "RuntimeFault": ("runtime", False),
    }


@pytest.mark.parametrize("retryable", [True, False])
def test_a_newer_peers_error_keeps_its_retryability(*, retryable: bool) -> None:
    wire = b'{"kind":"weather","name":"Rain","message":"wet","new":1,"retryable":%s}'
    fault = msgspec.json.decode(wire % (b"true" if retryable else b"false"), type=Fault)
    error = from_fault(fault)
    assert type(error) is RuntimeFault
    assert (error.message, error.retryable) == ("wet", retryable)


class Away(ResourceError):
    """An environment's own error."""

    retryable = True


def test_an_error_of_another_module_keeps_its_kind() -> None:
    back = from_fault(Away("no answer", stage="verify").fault())
    assert type(back) is ResourceError
    assert (back.kind, back.message, back.retryable) == ("resource", "no answer", True)


@table(("cls", "retryable"), list(itertools.product(CLASSES, [True, False])))
def test_the_sender_decides_about_retrying(cls: type[GymError], *, retryable: bool) -> None:
    fault = msgspec.structs.replace(cls().fault(), retryable=retryable)
    assert from_fault(fault).retryable is retryable
    assert cls.retryable == cls().retryable, "an instance must not change its class"


def test_what_an_engine_asked_for_stays_at_the_adapter() -> None:
    assert ModelUnavailable("slow down", retry_after_s=2.5).retry_after_s == 2.5
    assert ModelUnavailable().retry_after_s is None


@table(
    ("error", "expected"),
    [
        (ValueError("alone"), ValueError),
        (NoWorker("alone"), NoWorker),
        (ExceptionGroup("", [ValueError(), DeadlineExceeded()]), DeadlineExceeded),
        (ExceptionGroup("", [ExceptionGroup("", [KeyError(), ModelError()]), NoWorker()]), ModelError),
        (ExceptionGroup("", [ExceptionGroup("", [KeyError()]), ValueError()]), KeyError),
        (BaseExceptionGroup("", [KeyboardInterrupt(), NoWorker()]), NoWorker),
    ],
)
def test_leaf_is_what_a_group_is_about(error: BaseException, expected: type[BaseException]) -> None:
    assert type(leaf(error)) is expected
