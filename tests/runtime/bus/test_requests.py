"""Each request gets its own answer, its own refusal, or the news that the connection broke."""

from __future__ import annotations

from itertools import pairwise

import pytest
from gym_runtime.bus.link import Answer
from gym_runtime.bus.requests import Requests
from gym_runtime.errors import BrokerError, ConnectionLost

pytestmark = pytest.mark.anyio


async def test_an_answer_finds_its_request_and_a_late_one_nobody() -> None:
    requests = Requests("inbox.")
    first, first_reply, one = requests.begin("a")
    _, second_reply, two = requests.begin("a")
    requests.answer(second_reply.encode(), b"", b"", b"for two")
    requests.answer(second_reply.encode(), b"", b"", b"again")
    assert two.result() == Answer(b"", b"for two")
    assert not one.done()
    requests.end(first)
    requests.answer(first_reply.encode(), b"", b"", b"late")
    assert not one.done()
    assert len(requests) == 1


async def test_where_answers_go_cannot_be_guessed_from_another_request() -> None:
    requests = Requests("inbox.")
    numbers = [requests.begin("a")[0] for _ in range(1000)]
    steps = {after - before for before, after in pairwise(numbers)}
    assert len(set(numbers)) == 1000
    assert len(steps) == 999
    assert max(numbers) > 2**60


async def test_a_refusal_ends_all_requests_on_its_subject_and_no_other() -> None:
    requests = Requests("inbox.")
    futures = {subject: requests.begin(subject)[2] for subject in ("a", "b")}
    requests.deny("a", "may not")
    assert isinstance(futures["a"].result(), BrokerError)
    assert not futures["b"].done()
    requests.fail("gone")
    assert isinstance(futures["b"].result(), ConnectionLost)
    assert isinstance(futures["a"].result(), BrokerError)
