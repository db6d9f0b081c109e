"""Calls that form a tree: each sampled token is stored once, carried once, and trained at most once."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest
from gym_runtime.errors import TaskError, UsageError
from gym_runtime.messages.branches import ACCEPTED, BranchCall, CallTree, weights
from gym_runtime.messages.call_tokens import Tokens, pack_ids, pack_logprobs
from gym_runtime.messages.outcomes import RolloutRecord, encode_record, read_record
from gym_runtime.messages.sequences import TokenSequence, token_sequences
from runtime.messages.call_trees import Drawn, alone, call, draw, record
from tables import table

Sampled = list[tuple[str, list[int], list[int], list[float]]]


def sampled_in(sequences: list[TokenSequence]) -> Sampled:
    """Each call: its kind, its whole prompt, its ids and their log-probabilities."""
    found: Sampled = []
    for one in sequences:
        ids = [*one.prompt_ids.tolist(), *one.completion_ids.tolist()]
        first = len(one.prompt_ids)
        for start, end in one.turns:
            assert one.sampled[start:end].all()
            log_probs = one.log_probs[start:end].tolist()
            found.append((one.kind, ids[: first + start], ids[first + start : first + end], log_probs))
        assert one.sampled.sum() == sum(end - start for start, end in one.turns)
        assert not one.log_probs[~one.sampled].any()
    return sorted(found)


def wanted(calls: list[Drawn]) -> Sampled:
    return sorted((one.kind, one.prompt, one.ids, one.log_probs) for one in calls if one.ids)


def leaves(one: TokenSequence, others: list[TokenSequence]) -> bool:
    """Whether it begins with the ids that it says it has in common with its parent, and no further."""
    if one.parent < 0:
        return one.leaves_at == 0
    parent = others[one.parent]
    before = [*parent.prompt_ids.tolist(), *parent.completion_ids.tolist()]
    return one.prompt_ids.tolist()[: one.leaves_at] == before[: one.leaves_at]


def check(calls: list[Drawn]) -> None:
    read = read_record(encode_record(record(calls)))
    for found in (read.sequences("all"), token_sequences(read.row, credit="all")):
        assert sampled_in(found) == wanted(calls)
        assert all((one.mask == one.sampled).all() and one.weight == 1.0 for one in found)
        assert all(leaves(one, found) for one in found)
        assert [one.segment for one in found] == list(range(len(found)))
    for one in read.sequences():
        assert one.weight == (one.kind in ACCEPTED)
        assert (one.mask == (one.sampled & (one.kind in ACCEPTED))).all()


@pytest.mark.slow
def test_each_sampled_token_of_a_tree_is_carried_once() -> None:
    for seed in range(1000):
        check(draw(random.Random(seed)))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_each_sampled_token_of_many_trees_is_carried_once() -> None:
    for seed in range(100_000):
        check(draw(random.Random(seed), most=20))


def test_a_tree_is_stored_once() -> None:
    for seed in range(5):
        chance = random.Random(seed)
        calls = draw(chance, most=40, size=400)
        once = sum(len(msgspec.json.encode(alone(calls, one))) for one in calls)
        whole = record(calls)
        assert len(encode_record(whole)) <= 1.1 * once, seed


# -- what becomes of a branch -----------------------------------------------------------------------------


def made(*calls: tuple[Any, int, int]) -> RolloutRecord:
    """Of calls as ``(kind, parent, item)``, each with new ids behind its parent's."""
    chance, drawn = random.Random(2), list[Drawn]()
    for kind, parent, item in calls:
        drawn.append(call(chance, drawn, parent, kind, item, 5))
    return read_record(encode_record(record(drawn)))


def test_a_retry_leaves_the_main_line_which_goes_on() -> None:
    found = made(("main", -1, 0), ("retry", 0, -1), ("main", 0, 2), ("main", 2, 4)).sequences()
    assert [(one.kind, one.parent, one.weight) for one in found] == [("main", -1, 1.0), ("retry", 0, 0.0)]
    main, retry = found
    assert retry.prompt_ids.tolist()[: retry.leaves_at] == [
        *main.prompt_ids.tolist(),
        *main.completion_ids.tolist()[: retry.leaves_at - len(main.prompt_ids)],
    ]
    assert not retry.mask.any()
    assert retry.sampled.any()


def test_credit_by_a_rule() -> None:
    rollout = made(("main", -1, 0), ("attempt", 0, -1), ("compaction", -1, -1), ("side", -1, -1))
    assert [one.kind for one in rollout.sequences()] == ["main", "attempt", "compaction", "side"]
    by_rule = {
        rule: [one.weight for one in rollout.sequences(rule)] for rule in ("accepted", "all", "main", "last")
    }
    assert by_rule == {
        "accepted": [1.0, 0.0, 1.0, 0.0],
        "all": [1.0, 1.0, 1.0, 1.0],
        "main": [1.0, 0.0, 0.0, 0.0],
        "last": [0.0, 0.0, 0.0, 1.0],
    }
    assert [one.weight for one in rollout.sequences({"main": 1, "attempt": 0.25})] == [1.0, 0.25, 0.0, 0.0]


@pytest.mark.parametrize(
    ("credit", "words"),
    [
        ("al", "no credit 'al': use one of accepted, all, main, last"),
        ({"maim": 1}, "no kind of call 'maim': the kinds are main"),
        ({"main": -1}, "the weight of main is -1: give a number of at least 0"),
        ({"main": float("nan")}, "the weight of main is nan"),
    ],
)
def test_a_credit_that_is_none_is_refused(credit: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        weights(credit, ["main"])


def test_resampled_tokens_are_counted_where_they_no_longer_stand() -> None:
    tree = CallTree()
    first = Tokens(prompt_ids=pack_ids([1, 2]), generation_ids=pack_ids([3, 4, 5]))
    number = tree.add(first, BranchCall())
    # The second prompt has the first id of the answer, and then others.
    second = Tokens(same=3, rest=pack_ids([9, 9, 9]), generation_ids=pack_ids([6]))
    number = tree.add(second, BranchCall(parent=number))
    assert tree.branches() == ((), 2)
    # The third one has none of them: one of the first call's stood there, and the one of the second.
    third = Tokens(prompt_ids=pack_ids([7]), generation_ids=pack_ids([8]))
    tree.add(third, BranchCall(parent=number))
    assert tree.branches() == ((), 4)


# -- rows of others ----------------------------------------------------------------------------------------


def row(calls: list[dict[str, Any]]) -> bytes:
    item = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-1.0]}
    return msgspec.json.encode({"response": {"output": [item]}, "_gym": {"calls": calls}})


def packed(**fields: Any) -> dict[str, Any]:
    ids = pack_ids([5])
    return msgspec.to_builtins(Tokens(generation_ids=ids, log_probs=pack_logprobs([-1.0]), **fields))


@table(
    ("calls", "words"),
    [
        ([{"item": 0, "parent": 0}], "call 0 cannot continue call 0"),
        ([{"item": 0, "parent": -2}], "call 0 cannot continue call -2"),
        (
            [{"item": 0}, {"parent": 0, "tokens": packed(same=3)}],
            "call 1 repeats more ids than its parent has",
        ),
        ([{"item": 0}, {"tokens": {"log_probs": "AAAAAA=="}}], "a call of _gym.calls has 0 generated"),
        ([{"item": 0}, {"tokens": {"generation_ids": "AAA=", "log_probs": "AAA="}}], "not of 32 bits"),
        ([{"item": 0}, {"tokens": packed(prompt_ids=b"abc")}], "not of 32 bits"),
        ([{"item": 0}, {"parent": 0, "tokens": packed(same=-1)}], "call 1 repeats more ids than its"),
        ([{"item": 0, "tokens": {"generation_ids": "!"}}], "not a result row"),
        ([{"item": "0"}], "not a result row"),
    ],
)
def test_a_damaged_tree_is_named(calls: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        token_sequences(row(calls))


def test_a_small_row_cannot_claim_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gym_runtime.messages.sequences.PROMPT_BYTES", 4000)
    big = packed(prompt_ids=pack_ids(list(range(490))))
    again = {"parent": 1, "tokens": packed(same=490)}
    assert len(token_sequences(row([{"item": 0}, {"tokens": big}, again]))) == 3
    with pytest.raises(TaskError, match="more than 1,000 ids in their prompts"):
        token_sequences(row([{"item": 0}, {"tokens": big}, again, again]))


def test_a_call_that_the_row_does_not_name_is_carried_too() -> None:
    read = row([{"kind": "side", "tokens": packed(prompt_ids=pack_ids([8]))}])
    assert [(one.kind, one.completion_ids.tolist()) for one in token_sequences(read)] == [
        ("side", [5]),
        ("main", [2]),
    ]


def test_a_row_without_branches_has_its_old_bytes() -> None:
    one = made(("main", -1, 0), ("main", 0, 2))
    assert b'"_gym":{}' in bytes(one.row)
    assert np.concatenate([one.mask for one in one.sequences()]).all() or len(one.sequences()) == 1
