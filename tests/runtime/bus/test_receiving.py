"""Each request gets its own answer, its own refusal, or the news that the connection broke."""

from __future__ import annotations

from contextvars import Context
from itertools import pairwise
from typing import Any

import anyio
import pytest
from gym_runtime.bus.interface import Headers
from gym_runtime.bus.receiving import Interest, RawAnswer, Requests, Sink, Traffic
from gym_runtime.errors import BrokerError, ConnectionLost, DeadlineExceeded
from gym_runtime.timing import EXACT_S, OVERDUE_S
from gym_testing import virtual_clock
from nats.aio.client import Client
from nats.aio.msg import Msg

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return virtual_clock.BACKEND


async def test_an_answer_finds_its_request_and_a_late_one_nobody() -> None:
    requests = Requests("inbox.")
    first_reply, one = requests.begin("a", 60)
    second_reply, two = requests.begin("a", 60)
    requests.answer(second_reply, "", {}, b"for two")
    requests.answer(second_reply, "", {}, b"again")
    assert two.result() == RawAnswer({}, b"for two")
    assert not one.done()
    requests.end(first_reply)
    requests.answer(first_reply, "", {}, b"late")
    assert not one.done()
    assert len(requests) == 1


async def test_where_answers_go_cannot_be_guessed_from_another_request() -> None:
    requests = Requests("inbox.")
    numbers = [int(requests.begin("a", 60)[0].removeprefix("inbox.")) for _ in range(1000)]
    steps = {after - before for before, after in pairwise(numbers)}
    assert len(set(numbers)) == 1000
    assert len(steps) == 999
    assert max(numbers) > 2**60


async def test_a_refusal_ends_all_requests_on_its_subject_and_no_other() -> None:
    requests = Requests("inbox.")
    futures = {subject: requests.begin(subject, 60)[1] for subject in ("a", "b")}
    requests.deny("a", "may not")
    assert isinstance(futures["a"].result(), BrokerError)
    assert not futures["b"].done()
    requests.fail("gone")
    assert isinstance(futures["b"].result(), ConnectionLost)
    assert isinstance(futures["a"].result(), BrokerError)


@pytest.mark.parametrize(
    ("within_s", "late_s"), [(0.5, 0.0), (EXACT_S, 0.0), (EXACT_S + 0.1, OVERDUE_S), (60.0, OVERDUE_S)]
)
async def test_a_wait_ends_in_time_or_a_long_one_a_moment_later(within_s: float, late_s: float) -> None:
    requests = Requests("inbox.")
    started_s = anyio.current_time()
    answered, _ = requests.begin("b", within_s)
    await anyio.sleep(0.1)
    reply, future = requests.begin("a", within_s - 0.1)
    requests.end(answered)
    error = await future
    assert isinstance(error, DeadlineExceeded)
    assert within_s <= anyio.current_time() - started_s + 1e-6
    assert anyio.current_time() - started_s <= within_s + late_s + 1e-6
    requests.end(reply)


async def test_what_a_listener_fails_on_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[str] = []

    def listen(subject: str, reply: str, headers: Headers, payload: bytes) -> None:
        heard.append(subject)
        raise {"a": ValueError, "b": KeyError}[subject]("no")

    sink = Sink(Interest(">", "", listen), Traffic(), Context())
    for subject in "aaabbba":
        sink.set_result(Msg(_client=Client(), subject=subject))
    assert heard == [*"aaabbba"]
    assert "".join(capsys.readouterr()).count("receive failed") == 2
