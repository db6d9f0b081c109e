"""The laws of credit, on a model broker: no loop, no clock, no connection."""

from __future__ import annotations

from collections import deque

from gym_runtime.bus import pull
from gym_runtime.bus.pull import PULL_PAUSE_S, SILENCE, Credit, Ended, Event, Phase
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule


def step(state: Credit, event: Event, now_s: float, slots: int = 8) -> tuple[Credit, list[str | int]]:
    """What comes of an event, and how many tasks are asked for then, if any."""
    state, command = pull.step(state, event, now_s, slots)
    state, batch = pull.ask(state, now_s, slots)
    return state, [one for one in (command, batch) if one]


def opened(slots: int = 8, heartbeat_s: float = 5.0) -> Credit:
    state, commands = step(Credit(heartbeat_s=heartbeat_s), "opened", 0.0, slots)
    assert commands == [slots]
    return state


def test_asks_for_all_slots_at_once_and_for_no_more() -> None:
    state = opened(8)
    assert state.asked == 8
    assert step(state, "ticked", 1.0) == (state, [])


def test_a_delivery_uses_a_credit_and_a_slot() -> None:
    state, commands = step(opened(2), "delivered", 1.0, 2)
    assert commands == ["start"]
    assert (state.busy, state.asked) == (1, 1)


def test_freed_slots_are_asked_for_in_eighths() -> None:
    state = opened(16)
    for _ in range(4):
        state, _ = step(state, "delivered", 1.0, 16)
    state, commands = step(state, "finished", 1.0, 16)
    assert commands == []
    state, commands = step(state, "finished", 1.0, 16)
    assert commands == [2]


def test_the_last_credit_used_asks_for_every_free_slot() -> None:
    state = opened(1)
    state, commands = step(state, "delivered", 1.0, 1)
    assert commands == ["start"]
    state, commands = step(state, "finished", 2.0, 1)
    assert commands == [1]


def test_a_request_that_has_expired_is_repeated() -> None:
    state, commands = step(opened(8), Ended(8), 30.0)
    assert commands == [8]
    assert state.asked == 8


def test_the_end_of_one_request_leaves_the_credits_of_the_others() -> None:
    state = Credit(heartbeat_s=5.0, phase=Phase.OPEN, asked=6, busy=2)
    state, commands = step(state, Ended(4), 1.0)
    assert commands == [4]
    assert step(state, Ended(1), 1.0)[1] == [1]


def test_a_refused_request_waits_before_it_asks_again() -> None:
    state, commands = step(opened(8), Ended(8, refused=True), 1.0)
    assert commands == []
    state, commands = step(state, "ticked", 1.0 + PULL_PAUSE_S / 2)
    assert commands == []
    state, commands = step(state, "ticked", 1.0 + PULL_PAUSE_S)
    assert commands == [8]


def test_silence_writes_the_credits_off_and_asks_on_a_new_inbox() -> None:
    state = opened(8, heartbeat_s=1.0)
    state, commands = step(state, "ticked", SILENCE)
    assert commands == []
    state, commands = step(state, "ticked", SILENCE + 0.1)
    assert commands == ["reopen", 8]


def test_heartbeats_are_no_silence() -> None:
    state = opened(8, heartbeat_s=1.0)
    for second in range(1, 20):
        state, _ = step(state, "heartbeat", float(second))
        state, commands = step(state, "ticked", second + 0.9)
        assert commands == []


def test_a_busy_worker_hears_nothing_and_does_not_mind() -> None:
    state, _ = step(opened(1, heartbeat_s=1.0), "delivered", 1.0, 1)
    assert step(state, "ticked", 1000.0, 1)[1] == []
    state, commands = step(state, "finished", 1000.0, 1)
    assert commands == [1]
    assert step(state, "ticked", 1001.0, 1)[1] == []


def test_a_broken_connection_forgets_the_credits_and_keeps_the_work() -> None:
    state, _ = step(opened(8), "delivered", 1.0)
    state, commands = step(state, "broke", 1.0)
    assert (state.busy, state.asked, commands) == (1, 0, [])
    assert step(state, "finished", 2.0)[1] == []
    state, commands = step(state, "opened", 3.0)
    assert commands == [7]


def test_a_vanished_consumer_is_restored_once() -> None:
    state, commands = step(opened(8), "vanished", 1.0)
    assert commands == ["restore"]
    assert step(state, "vanished", 1.0)[1] == []
    state, commands = step(state, "opened", 1.0)
    assert commands == []
    assert step(state, "ticked", 1.0 + PULL_PAUSE_S)[1] == [8]


def test_a_stopped_worker_takes_nothing_new() -> None:
    state, _ = step(opened(2), "delivered", 1.0, 2)
    state, commands = step(state, "stopped", 1.0, 2)
    assert commands == ["leave"]
    state, commands = step(state, "delivered", 2.0, 2)
    assert commands == ["refuse"]
    state, commands = step(state, "finished", 3.0, 2)
    assert (state.busy, commands) == (0, [])
    assert step(state, "opened", 4.0, 2)[1] == ["leave"]


def test_a_delivery_of_an_inbox_that_was_given_up_is_taken_while_there_is_room() -> None:
    state, commands = step(opened(2), "stray", 1.0, 2)
    assert (state.busy, state.asked, commands) == (1, 2, ["start"])
    state, commands = step(state, "delivered", 1.0, 2)
    assert (state.busy, state.asked, commands) == (2, 1, ["start"])
    state, commands = step(state, "delivered", 1.0, 2)
    assert (state.busy, state.asked, commands) == (2, 0, ["refuse"])


class Exchange(RuleBasedStateMachine):
    """The worker against a model broker, with events in any order and statuses that arrive late."""

    @initialize(slots=st.integers(1, 40))
    def begin(self, slots: int) -> None:
        self.now_s = 0.0
        self.slots = slots
        self.state = Credit(heartbeat_s=1.0)
        self.pulls: deque[int] = deque()
        self.late: deque[Ended] = deque()
        self.feed("opened")

    def feed(self, event: Event) -> None:
        self.state, commands = step(self.state, event, self.now_s, self.slots)
        for command in commands:
            match command:
                case int(batch):
                    self.pulls.append(batch)
                case "reopen" | "leave":
                    self.pulls.clear()
                    self.late.clear()
                case "restore":
                    self.pulls.clear()
                    self.late.clear()
                    self.feed("opened")
                case "refuse":
                    assert self.state.phase is Phase.CLOSING
                case _:
                    assert command == "start"

    @rule(seconds=st.floats(0.0, 4.0))
    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        self.feed("ticked")

    @precondition(lambda self: self.pulls)
    @rule()
    def deliver(self) -> None:
        self.pulls[0] -= 1
        if not self.pulls[0]:
            self.pulls.popleft()
        self.feed("delivered")

    @precondition(lambda self: self.pulls)
    @rule(data=st.data(), refused=st.booleans())
    def expire(self, data: st.DataObject, refused: bool) -> None:
        at = data.draw(st.integers(0, len(self.pulls) - 1))
        self.late.append(Ended(self.pulls[at], refused))
        del self.pulls[at]

    @precondition(lambda self: self.late)
    @rule()
    def arrive(self) -> None:
        self.feed(self.late.popleft())

    @precondition(lambda self: self.state.busy)
    @rule()
    def finish(self) -> None:
        self.feed("finished")

    @rule()
    def beat(self) -> None:
        self.feed("heartbeat")

    @rule()
    def break_and_return(self) -> None:
        self.pulls.clear()
        self.late.clear()
        self.feed("broke")
        self.feed("opened")

    @rule()
    def vanish(self) -> None:
        self.feed("vanished")

    @invariant()
    def never_more_than_the_slots(self) -> None:
        assert self.state.busy >= 0
        assert self.state.busy + self.state.asked <= self.slots

    @invariant()
    def the_books_agree_with_the_broker(self) -> None:
        # Credits that the broker has ended but not told us yet are still in our books.
        assert self.state.asked == sum(self.pulls) + sum(ended.left for ended in self.late)

    def teardown(self) -> None:
        # Whatever happened: once all is told and done, every slot is asked for.
        while self.late:
            self.arrive()
        while self.state.busy:
            self.finish()
        for _ in range(2):
            self.now_s += 1.0
            self.feed("heartbeat")
            self.feed("ticked")
        if self.state.phase is Phase.OPEN:
            assert self.slots - self.state.asked < max(1, self.slots // 8)


TestExchange = Exchange.TestCase
TestExchange.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

EVENTS: list[Event] = ["delivered", "stray", "finished", "broke", "opened", "stopped", "ticked", Ended(3)]


@given(st.lists(st.sampled_from(EVENTS)))
def test_no_order_of_events_breaks_the_limits(events: list[Event]) -> None:
    state = Credit(heartbeat_s=1.0)
    for now_s, event in enumerate(events):
        if event != "finished" or state.busy:
            state, commands = step(state, event, now_s, 4)
            assert 0 <= state.busy <= 4
            assert state.busy + state.asked <= 4 or not any(isinstance(one, int) for one in commands)
