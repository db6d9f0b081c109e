"""The laws of credit, on a model broker: no loop, no clock, no connection."""

from __future__ import annotations

from collections import deque

import msgspec
from gym_runtime.bus.pull import (
    PULL_PAUSE_S,
    SILENCE,
    Ask,
    Beat,
    Broke,
    Credit,
    Delivered,
    Ended,
    Finished,
    Opened,
    Phase,
    Pull,
    Stopped,
    Ticked,
    Vanished,
    step,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule


def opened(slots: int = 8, heartbeat_s: float = 5.0) -> Credit:
    state, commands = step(Credit(slots=slots, heartbeat_s=heartbeat_s), Opened(0.0))
    assert commands == [Ask(1, slots)]
    return state


def test_asks_for_all_slots_at_once_and_for_no_more() -> None:
    state = opened(8)
    assert state.asked == 8
    assert step(state, Ticked(1.0)) == (state, [])


def test_a_delivery_uses_a_credit_and_a_slot() -> None:
    state, commands = step(opened(2), Delivered(1.0))
    assert commands == ["start"]
    assert (state.busy, state.asked) == (1, 1)


def test_freed_slots_are_asked_for_in_eighths() -> None:
    state = opened(16)
    for _ in range(4):
        state, _ = step(state, Delivered(1.0))
    state, commands = step(state, Finished(1.0))
    assert commands == []
    state, commands = step(state, Finished(1.0))
    assert commands == [Ask(2, 2)]


def test_the_last_credit_used_asks_for_every_free_slot() -> None:
    state = opened(1)
    state, commands = step(state, Delivered(1.0))
    state, commands = step(state, Finished(2.0))
    assert commands == [Ask(2, 1)]


def test_an_expired_pull_is_asked_anew() -> None:
    state, commands = step(opened(8), Ended(30.0, 1, left=8))
    assert commands == [Ask(2, 8)]
    assert state.pulls == (Pull(2, 8),)


def test_a_status_without_a_count_ends_what_is_booked() -> None:
    state, _ = step(opened(8), Delivered(1.0))
    state, commands = step(state, Ended(30.0, 1))
    assert commands == [Ask(2, 7)]


def test_a_wrong_booking_is_put_right() -> None:
    pulls = (Pull(1, 2), Pull(2, 4))
    state = Credit(slots=8, heartbeat_s=5.0, phase=Phase.OPEN, pulls=pulls, busy=2, next_number=3)
    # The broker says that pull 1 had more left than was booked: its deliveries were those of pull 2.
    right, _ = step(state, Ended(1.0, 1, left=4))
    assert right.pulls == (Pull(2, 2), Pull(3, 4))
    # And here that it had less left.
    right, _ = step(state, Ended(1.0, 1, left=1))
    assert right.pulls == (Pull(2, 5), Pull(3, 1))


def test_a_refused_pull_waits_before_it_asks_again() -> None:
    state, commands = step(opened(8), Ended(1.0, 1, left=8, refused=True))
    assert commands == []
    state, commands = step(state, Ticked(1.0 + PULL_PAUSE_S / 2))
    assert commands == []
    state, commands = step(state, Ticked(1.0 + PULL_PAUSE_S))
    assert commands == [Ask(2, 8)]


def test_silence_writes_the_credits_off_and_asks_on_a_new_inbox() -> None:
    state = opened(8, heartbeat_s=1.0)
    state, commands = step(state, Ticked(SILENCE))
    assert commands == []
    state, commands = step(state, Ticked(SILENCE + 0.1))
    assert commands == ["reopen", Ask(2, 8)]


def test_heartbeats_are_no_silence() -> None:
    state = opened(8, heartbeat_s=1.0)
    for second in range(1, 20):
        state, _ = step(state, Beat(float(second)))
        state, commands = step(state, Ticked(second + 0.9))
        assert commands == []


def test_a_busy_worker_hears_nothing_and_does_not_mind() -> None:
    state, _ = step(opened(1, heartbeat_s=1.0), Delivered(1.0))
    assert step(state, Ticked(1000.0))[1] == []
    state, commands = step(state, Finished(1000.0))
    assert commands == [Ask(2, 1)]
    assert step(state, Ticked(1001.0))[1] == []


def test_a_broken_connection_forgets_the_credits_and_keeps_the_work() -> None:
    state, _ = step(opened(8), Delivered(1.0))
    state, commands = step(state, Broke())
    assert (state.busy, state.asked, commands) == (1, 0, [])
    assert step(state, Finished(2.0))[1] == []
    state, commands = step(state, Opened(3.0))
    assert commands == [Ask(2, 7)]


def test_a_vanished_consumer_is_restored_once() -> None:
    state, commands = step(opened(8), Vanished(1.0))
    assert commands == ["restore"]
    assert step(state, Vanished(1.0))[1] == []
    state, commands = step(state, Opened(1.0))
    assert commands == []
    assert step(state, Ticked(1.0 + PULL_PAUSE_S))[1] == [Ask(2, 8)]


def test_a_stopped_worker_takes_nothing_new() -> None:
    state, _ = step(opened(2), Delivered(1.0))
    state, commands = step(state, Stopped())
    assert commands == ["leave"]
    state, commands = step(state, Delivered(2.0))
    assert commands == ["refuse"]
    state, commands = step(state, Finished(3.0))
    assert (state.busy, commands) == (0, [])
    assert step(state, Opened(4.0))[1] == ["leave"]


def test_an_unexpected_delivery_is_taken_while_there_is_room() -> None:
    state = Credit(slots=1, heartbeat_s=5.0)
    state, commands = step(state, Delivered(1.0))
    assert commands == ["start"]
    state, commands = step(state, Delivered(1.0))
    assert (state.busy, commands) == (1, ["refuse"])


class Exchange(RuleBasedStateMachine):
    """The worker against a model broker, with events in any order and statuses that arrive late."""

    @initialize(slots=st.integers(1, 40))
    def begin(self, slots: int) -> None:
        self.now_s = 0.0
        self.state = Credit(slots=slots, heartbeat_s=1.0)
        self.pulls: deque[list[int]] = deque()
        self.late: deque[Ended] = deque()
        self.feed(Opened(self.now_s))

    def feed(self, event: object) -> None:
        self.state, commands = step(self.state, event)  # type: ignore[arg-type]
        for command in commands:
            match command:
                case Ask(number, batch):
                    self.pulls.append([number, batch])
                case "reopen" | "leave":
                    self.pulls.clear()
                    self.late.clear()
                case "restore":
                    self.pulls.clear()
                    self.late.clear()
                    self.feed(Opened(self.now_s))
                case "refuse":
                    assert self.state.phase is Phase.CLOSING
                case "start":
                    pass

    @rule(seconds=st.floats(0.0, 4.0))
    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        self.feed(Ticked(self.now_s))

    @precondition(lambda self: self.pulls)
    @rule()
    def deliver(self) -> None:
        self.pulls[0][1] -= 1
        if not self.pulls[0][1]:
            self.pulls.popleft()
        self.feed(Delivered(self.now_s))

    @precondition(lambda self: self.pulls)
    @rule(data=st.data(), refused=st.booleans())
    def expire(self, data: st.DataObject, refused: bool) -> None:
        pull = data.draw(st.sampled_from(list(self.pulls)))
        self.pulls.remove(pull)
        self.late.append(Ended(self.now_s, pull[0], pull[1], refused))

    @precondition(lambda self: self.late)
    @rule()
    def arrive(self) -> None:
        self.feed(msgspec.structs.replace(self.late.popleft(), now_s=self.now_s))

    @precondition(lambda self: self.state.busy)
    @rule()
    def finish(self) -> None:
        self.feed(Finished(self.now_s))

    @rule()
    def beat(self) -> None:
        self.feed(Beat(self.now_s))

    @rule()
    def break_and_return(self) -> None:
        self.pulls.clear()
        self.late.clear()
        self.feed(Broke())
        self.feed(Opened(self.now_s))

    @rule()
    def vanish(self) -> None:
        self.feed(Vanished(self.now_s))

    @invariant()
    def never_more_than_the_slots(self) -> None:
        state = self.state
        assert 0 <= state.busy <= state.slots
        assert state.busy + state.asked <= state.slots
        assert all(pull.left > 0 for pull in state.pulls)

    @invariant()
    def the_books_agree_with_the_broker(self) -> None:
        # Credits that the broker has ended but not told us yet are still in our books.
        there = sum(left for _, left in self.pulls) + sum(ended.left or 0 for ended in self.late)
        assert self.state.asked == there

    def teardown(self) -> None:
        # Whatever happened: once all is told and done, every slot is asked for.
        while self.late:
            self.arrive()
        while self.state.busy:
            self.finish()
        for _ in range(2):
            self.now_s += 1.0
            self.feed(Beat(self.now_s))
            self.feed(Ticked(self.now_s))
        if self.state.phase is Phase.OPEN:
            idle = self.state.slots - self.state.asked
            assert idle < max(1, self.state.slots // 8)


TestExchange = Exchange.TestCase
TestExchange.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.lists(st.sampled_from(["delivered", "finished", "ended", "broke", "opened", "stopped", "tick"])))
def test_no_order_of_events_breaks_the_limits(events: list[str]) -> None:
    state = Credit(slots=4, heartbeat_s=1.0)
    for now, name in enumerate(events):
        if name == "finished" and not state.busy:
            continue
        event = {
            "delivered": Delivered(now),
            "finished": Finished(now),
            "ended": Ended(now, 1, left=3),
            "broke": Broke(),
            "opened": Opened(now),
            "stopped": Stopped(),
            "tick": Ticked(now),
        }[name]
        state, _ = step(state, event)
        assert 0 <= state.busy <= state.slots
        assert state.busy + state.asked <= state.slots
