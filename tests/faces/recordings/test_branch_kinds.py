"""What a harness's calls are to its rollout, and that none of their tokens is lost."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from faces.recordings.test_transcript import RESULT, SYSTEM, USER, call, raws, said
from gym_faces.recordings.transcript import Transcript
from gym_runtime.messages import BranchCall, Branches, Tokens, pack_ids, pack_logprobs
from gym_runtime.messages.call_tokens import chained
from gym_runtime.messages.sequences import packed_sequences

SUMMARY = "So far the weather of Ulm was asked for, and it rains there."
PART = "Find out what the weather in Ulm is like, and say so."


class Harness:
    """A transcript whose calls have tokens: those of all items so far, and three that are sampled."""

    def __init__(self) -> None:
        self.transcript = Transcript()
        self.sampled: list[list[int]] = []
        self._chance = random.Random(1)
        self._ids: dict[str, list[int]] = {}

    def ask(self, *said: Any, answer: Any, asked: int | None = None) -> None:
        prompt = [one for item in said for one in self._ids_of(item)]
        ids = self._ids_of(answer)
        self.sampled.append(ids)
        tokens = Tokens(
            prompt_ids=pack_ids(prompt),
            generation_ids=pack_ids(ids),
            log_probs=pack_logprobs([-1.0] * 3),
        )
        self.transcript.add(raws(*said), raws(answer), tokens, asked)

    def _ids_of(self, item: Any) -> list[int]:
        known = self._ids.setdefault(json.dumps(item), [])
        if not known:
            known += [self._chance.randrange(1_000_000) for _ in range(3)]
        return list(known)

    @property
    def told(self) -> Branches:
        return self.transcript.branches()

    @property
    def kinds(self) -> list[str]:
        return [one.kind for one in self.told.calls]

    def assert_nothing_is_lost(self) -> None:
        row = json.dumps({"_gym": {"calls": msgspec.to_builtins(self.told.calls)}}).encode()
        found = packed_sequences(chained(self.transcript.tokens), row, credit="all")
        trained = [one.completion_ids[start:end].tolist() for one in found for start, end in one.turns]
        assert sorted(trained) == sorted(self.sampled)


def talk() -> Harness:
    """Two turns: a call, and a message."""
    harness = Harness()
    harness.ask(SYSTEM, USER, answer=call())
    harness.ask(SYSTEM, USER, call(), RESULT, answer=said("It rains."))
    return harness


def test_one_line_has_nothing_to_tell() -> None:
    assert talk().told == ((), 0)


def test_a_summary_that_replaces_the_history_and_what_goes_on_from_it() -> None:
    harness = talk()
    asked = {"role": "user", "content": "Sum it up."}
    wrong = said("I do not know what to sum up, sorry.")
    harness.ask(SYSTEM, USER, call(), RESULT, said("It rains."), asked, answer=wrong)
    harness.ask(SYSTEM, USER, call(), RESULT, said("It rains."), asked, answer=said(SUMMARY))
    begun = {"role": "user", "content": f"The conversation so far:\n{SUMMARY}\nGo on."}
    harness.ask(SYSTEM, begun, answer=call('{"b": 1}', "c2"))
    result = {**RESULT, "call_id": "c2"}
    harness.ask(SYSTEM, begun, call('{"b": 1}', "c2"), result, answer=said("Done."))
    # Both conversations have three calls of the policy's work: the later one is the main one.
    harness.ask(SYSTEM, begun, call('{"b": 1}', "c2"), result, said("Done."), USER, answer=said("Yes."))
    assert harness.kinds == ["compaction", "compaction", "attempt", "compaction", "main", "main", "main"]
    assert [one.parent for one in harness.told.calls] == [-1, 0, 1, 1, -1, 4, 5]
    harness.assert_nothing_is_lost()


def test_a_sub_agent_is_told_by_its_task_or_by_its_report() -> None:
    harness = Harness()
    spawned = call(json.dumps({"prompt": PART, "n": 1}))
    harness.ask(USER, answer=spawned)
    harness.ask(SYSTEM, {"role": "user", "content": f"Task: {PART}"}, answer=call(call_id="c9"))
    ulm = {"role": "user", "content": "Ulm?"}
    report = said("In Ulm it rains, and the wind blows.")
    harness.ask(ulm, answer=call(call_id="c8"))
    harness.ask(ulm, call(call_id="c8"), {**RESULT, "call_id": "c8"}, answer=report)
    output = {**RESULT, "output": "The report: In Ulm it rains, and the wind blows."}
    harness.ask(USER, spawned, output, answer=said("It rains."))
    harness.ask(USER, spawned, output, said("It rains."), USER, answer=said("Yes."))
    assert harness.kinds == ["main", "subagent", "subagent", "subagent", "main", "main"]
    harness.assert_nothing_is_lost()


def test_what_was_asked_again_and_what_was_asked_at_once() -> None:
    harness = talk()
    before = (SYSTEM, USER, call(), RESULT)
    harness.ask(*before, answer=said("It pours."))  # after the first answer, which is used
    assert harness.kinds == ["main", "retry", "main"]
    for number in range(3):
        harness.ask(*before, said("It pours."), USER, answer=said(f"Sample {number}"), asked=3)
    assert harness.kinds == ["main", "retry", "main", "parallel", "parallel", "main"]
    harness.assert_nothing_is_lost()


def test_side_questions_and_a_history_that_was_cut() -> None:
    harness = Harness()
    harness.ask({"role": "user", "content": "A title for this?"}, answer=said("Weather"))
    harness.ask(USER, answer=call())
    harness.ask(USER, call(), RESULT, answer=said("It rains."))
    # The oldest output was left out, and the model's own item is repeated behind other items.
    cut = {**RESULT, "output": "(left out)"}
    harness.ask(USER, call(), cut, said("It rains."), USER, answer=said("Yes."))
    harness.ask(USER, call(), cut, said("It rains."), USER, said("Yes."), USER, answer=said("So it is."))
    assert harness.kinds == ["side", "main", "compaction", "main", "main"]
    assert harness.told.resampled == 0
    harness.assert_nothing_is_lost()


def test_an_answer_that_the_template_wrote_in_other_ids_is_counted() -> None:
    harness = talk()
    other = [*range(100, 109), *range(9)]
    tokens = Tokens(prompt_ids=pack_ids(other), generation_ids=pack_ids([7]), log_probs=pack_logprobs([-1.0]))
    items = raws(SYSTEM, USER, call(), RESULT, said("It rains."), USER)
    harness.transcript.add(items, raws(said("Yes.")), tokens)
    # The six that were sampled stand nowhere in the third prompt.
    assert harness.told == ((), 6)


def test_calls_without_tokens_are_left_out_and_their_successors_are_not() -> None:
    harness = talk()
    harness.transcript.add(raws(USER, SYSTEM), raws(said("lost")))
    harness.ask(USER, SYSTEM, said("lost"), USER, answer=said("kept"))
    harness.ask(SYSTEM, USER, call(), RESULT, said("It rains."), USER, answer=said("Yes."))
    assert harness.kinds == ["main", "main", "side", "main"]
    assert harness.told.calls[0] == BranchCall(item=0)
    harness.assert_nothing_is_lost()


@pytest.mark.slow
def test_thousands_of_calls_are_told_apart_at_once() -> None:
    harness = Harness()
    for number in range(2000):
        harness.ask(
            {"role": "user", "content": f"Question {number} of many?"}, answer=said(f"Answer {number} to it")
        )
    assert set(harness.kinds) == {"main", "side"}
    again = Harness()
    for number in range(2000):
        again.ask(USER, answer=said(f"Answer {number} to it"))
    assert again.kinds == ["retry"] * 1999 + ["main"]
