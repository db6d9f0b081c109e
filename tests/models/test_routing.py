"""Whose turn it is, and how many calls a replica may have: the rules, without engines."""

from __future__ import annotations

from math import inf

import pytest
from gym_models.wire import load
from gym_models.wire.load import Load
from gym_models.wire.routing import MISSED_CHECKS, ReplicaState, adapted, choose, is_forsaken, is_frozen
from hypothesis import given
from hypothesis import strategies as st
from tables import table

ROLLOUTS = [f"run.{number}.0" for number in range(2000)]


def fleet(count: int) -> list[ReplicaState]:
    return [ReplicaState(url=f"http://10.0.0.{number}:8000/v1", up=True) for number in range(count)]


def homes(replicas: list[ReplicaState]) -> dict[str, str]:
    found = {rollout: choose(rollout, replicas) for rollout in ROLLOUTS}
    return {rollout: state.url for rollout, state in found.items() if state is not None}


def test_rollouts_keep_to_their_homes_which_are_evenly_filled() -> None:
    replicas = fleet(4)
    found = homes(replicas)
    assert found == homes(list(reversed(replicas)))
    counts = [list(found.values()).count(one.url) for one in replicas]
    assert sum(counts) == len(ROLLOUTS)
    assert min(counts) > len(ROLLOUTS) / 4 * 0.85


def test_a_new_replica_takes_its_share_and_moves_nobody_else() -> None:
    replicas = fleet(5)
    before, after = homes(replicas[:4]), homes(replicas)
    moved = {rollout for rollout in ROLLOUTS if before[rollout] != after[rollout]}
    assert {after[rollout] for rollout in moved} == {replicas[4].url}
    assert 0.15 < len(moved) / len(ROLLOUTS) < 0.25


@pytest.mark.parametrize("why", ["out", "leaving"])
def test_whose_replica_is_gone_is_spread_over_the_others(why: str) -> None:
    replicas = fleet(4)
    before = homes(replicas)
    gone = replicas[1]
    gone.up, gone.leaving = why != "out", why == "leaving"
    after = homes(replicas)
    for rollout in ROLLOUTS:
        if before[rollout] != gone.url:
            assert after[rollout] == before[rollout]
    assert set(after.values()) == {one.url for one in replicas if one is not gone}


def test_one_that_rests_is_asked_only_if_no_other_is_up() -> None:
    replicas = fleet(2)
    home = choose("run.0.0", replicas)
    assert home is not None
    (other,) = (one for one in replicas if one is not home)
    home.rests_until_s = 9.0
    assert choose("run.0.0", replicas, 8.0) is other
    assert choose("run.0.0", replicas, 9.0) is home
    other.up = False
    assert choose("run.0.0", replicas, 8.0) is home


def test_a_full_home_spills_to_the_least_loaded() -> None:
    replicas = fleet(3)
    home = choose("run.0.0", replicas)
    assert home is not None
    idle, busy = (one for one in replicas if one is not home)
    home.in_flight = home.limit = 8
    busy.in_flight, busy.limit = 6, 8
    idle.in_flight, idle.limit = 3, 8
    assert choose("run.0.0", replicas) is idle
    idle.limit = 3
    assert choose("run.0.0", replicas) is busy
    busy.limit = 6
    assert choose("run.0.0", replicas) is None
    home.in_flight = 7
    assert choose("run.0.0", replicas) is home


def test_when_all_are_out_one_is_tried_but_none_that_leaves() -> None:
    replicas = fleet(3)
    home = choose("run.0.0", replicas)
    for one in replicas:
        one.up = False
    assert choose("run.0.0", replicas) is home
    for one in replicas:
        one.leaving = True
    assert choose("run.0.0", replicas) is None
    assert choose("run.0.0", []) is None


STATES = st.builds(
    ReplicaState,
    url=st.sampled_from([f"http://{letter}/v1" for letter in "abcdef"]),
    up=st.booleans(),
    leaving=st.booleans(),
    in_flight=st.integers(0, 9),
    missed=st.integers(0, MISSED_CHECKS + 1),
    limit=st.sampled_from([1.0, 3.5, 8.0, inf]),
)


@pytest.mark.slow
@given(st.lists(STATES, unique_by=lambda one: one.url), st.text(max_size=8))
def test_the_chosen_one_may_be_used(replicas: list[ReplicaState], rollout: str) -> None:
    found = choose(rollout, replicas)
    usable = [one for one in replicas if one.up and not one.leaving and one.has_room]
    if found is None:
        assert not usable
    else:
        assert found.has_room
        assert not found.leaving
        assert found.up or not any(one.up and not one.leaving for one in replicas)


@table(
    ("missed", "others", "expected"),
    [
        (MISSED_CHECKS, [ReplicaState(url="b", up=True)], True),
        (MISSED_CHECKS + 9, [ReplicaState(url="b"), ReplicaState(url="c", up=True)], True),
        (MISSED_CHECKS - 1, [ReplicaState(url="b", up=True)], False),  # it is slow
        (MISSED_CHECKS, [], False),  # alone
        (MISSED_CHECKS, [ReplicaState(url="b")], False),  # nobody is better off
        (MISSED_CHECKS, [ReplicaState(url="b", up=True, leaving=True)], False),
        (MISSED_CHECKS, [ReplicaState(url="b", up=True, missed=1)], False),  # may be as frozen
        (MISSED_CHECKS, [ReplicaState(url="b", up=True, in_flight=9, limit=3)], True),  # there they queue
    ],
)
def test_whose_calls_are_taken_away(missed: int, others: list[ReplicaState], expected: bool) -> None:
    silent = ReplicaState(url="a", missed=missed, in_flight=3)
    assert is_forsaken(silent, [*others, silent]) is expected


@pytest.mark.slow
@given(st.lists(STATES, unique_by=lambda one: one.url))
def test_calls_are_only_taken_from_the_frozen_and_only_where_another_is_up(
    replicas: list[ReplicaState],
) -> None:
    for number, one in enumerate(replicas):
        if is_forsaken(one, replicas):
            assert is_frozen(one)
            assert any(other.up and not other.missed for at, other in enumerate(replicas) if at != number)


def test_a_queue_cuts_the_limit_to_what_runs_and_a_short_queue() -> None:
    alone = ReplicaState(url="a", in_flight=2048)
    assert adapted(alone, Load(running=256, waiting=1792)) == 256 + 32
    one_of_two = ReplicaState(url="a", in_flight=1024)
    assert adapted(one_of_two, Load(running=256, waiting=1792)) == 144
    assert adapted(ReplicaState(url="a", in_flight=0), Load(running=8, waiting=90)) == 1


def test_a_full_cache_takes_a_tenth_off() -> None:
    full = ReplicaState(url="a", in_flight=110)
    assert adapted(full, Load(running=110, kv_usage=0.97)) == pytest.approx(100)
    full.limit = 50
    assert adapted(full, Load(running=110, kv_usage=0.97)) == 50


def test_a_limit_in_use_grows_and_one_that_is_not_stays() -> None:
    tight = ReplicaState(url="a", in_flight=100, limit=100)
    assert adapted(tight, Load(running=100)) == pytest.approx(111)
    assert adapted(ReplicaState(url="a", in_flight=10, limit=100), Load(running=10)) == 100
    assert adapted(ReplicaState(url="a", in_flight=10), Load(running=10)) == inf


def test_the_limit_settles_where_the_queue_is_short() -> None:
    """An engine with 64 places, and 512 callers who fill whatever the limit lets them."""
    state = ReplicaState(url="a")
    for _ in range(50):
        state.in_flight = int(min(512, state.limit))
        running = min(64, state.in_flight)
        state.limit = adapted(state, Load(running=running, waiting=state.in_flight - running))
        assert state.limit >= 64
    assert state.limit <= 64 * 1.3


VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1.2e+03
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 900.0
vllm:prefix_cache_hits_created{engine="0",model_name="m"} 1.7e+09
vllm:e2e_request_latency_seconds_bucket{le="0.3"} 7.0
"""
OLD_VLLM = b'vllm:num_requests_running{model_name="m"} 1.0\nvllm:gpu_cache_usage_perc{model_name="m"} 0.75\n'
SGLANG = b"""sglang:num_running_reqs{model_name="m"} 161.0
sglang:num_queue_reqs{model_name="m"} 2826.0
sglang:token_usage{model_name="m"} 0.28
sglang:cached_tokens_total{cache_source="device",model_name="m"} 10.0
sglang:prompt_tokens_total{model_name="m"} 40.0
"""
LLAMA_CPP = b"llamacpp:requests_processing 8\nllamacpp:requests_deferred 5\n"


@table(
    ("text", "found"),
    [
        (VLLM, Load(running=7, waiting=2, kv_usage=0.5, prefix_hits=900, prefix_queries=1200)),
        (OLD_VLLM, Load(running=1, kv_usage=0.75)),
        (SGLANG, Load(running=161, waiting=2826, kv_usage=0.28, prefix_hits=10, prefix_queries=40)),
        (LLAMA_CPP, Load(running=8, waiting=5)),
        (b'{"detail":"Not Found"}', None),
        (b"process_open_fds 12.0\n", None),
        (b"vllm:num_requests_running NaN_\n", None),
    ],
)
def test_reading_metrics(text: bytes, found: Load | None) -> None:
    assert load.read(text) == found
