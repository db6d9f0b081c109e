"""Sessions of Codex, Claude Code and OpenCode, with a compaction and a sub-agent: no sampled token is lost.

`record_sessions` says how they were recorded.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest
from faces.recordings.test_transcript import raws
from gym_faces.recordings.transcript import Transcript
from gym_runtime.messages import Tokens, pack_ids, pack_logprobs, shortened
from gym_runtime.messages.call_tokens import chained
from gym_runtime.messages.outcomes import Completed, RolloutRecord, encode_record, read_record
from msgspec import Raw

DATA = Path(__file__).parents[2] / "data" / "sessions"
MAIN, PART, SUMMED, SIDE = "main", "subagent", "compaction", "side"
KINDS = {
    # The one that has more calls, before or after the compaction, is the main conversation.
    "codex": [MAIN, MAIN, PART, PART, MAIN, MAIN, SUMMED, SUMMED],
    "claude-code": [SUMMED, PART, PART, SUMMED, SUMMED, MAIN, MAIN],
    # It asks for a title first, and tells its history to a conversation apart, which sums it up.
    "opencode": [SIDE, SUMMED, PART, PART, SUMMED, SUMMED, MAIN, MAIN],
}
Call = tuple[list[int], list[int], list[float]]


def replayed(name: str) -> tuple[Transcript, list[Call]]:
    """The session with exact tokens: each item has some of its own, and so has each answer."""
    session = json.loads((DATA / f"{name}.json").read_text())
    chance, known = random.Random(1), dict[int, list[int]]()
    transcript, sampled = Transcript(), list[Call]()
    for asked_items, answer_items, asked in session["calls"]:
        for number in [*asked_items, *answer_items]:
            known.setdefault(number, [chance.randrange(100_000) for _ in range(chance.randint(50, 400))])
        prompt = [one for number in asked_items for one in known[number]]
        ids = [one for number in answer_items for one in known[number]]
        log_probs = [-chance.randrange(1000) / 64 for _ in ids]
        sampled.append((prompt, ids, log_probs))
        tokens = Tokens(
            prompt_ids=pack_ids(prompt), generation_ids=pack_ids(ids), log_probs=pack_logprobs(log_probs)
        )
        said, answer = ([session["items"][number] for number in one] for one in (asked_items, answer_items))
        transcript.add(raws(*said), raws(*answer), tokens, asked)
    return transcript, sampled


def record_of(transcript: Transcript) -> RolloutRecord:
    told = transcript.branches()
    output = [{"type": "message", "role": "assistant", "content": ""} for _ in transcript.output]
    row = {"response": {"output": output}, "_gym": {"calls": msgspec.to_builtins(told.calls)}}
    return RolloutRecord(
        run="r",
        task_index=0,
        rollout_index=0,
        environment="e",
        outcome=Completed(),
        row=Raw(msgspec.json.encode(row)),
        tokens=chained(transcript.tokens),
    )


@pytest.mark.parametrize("name", KINDS)
def test_each_sampled_token_of_a_real_session_is_carried_and_trained_once(name: str) -> None:
    transcript, sampled = replayed(name)
    assert [one.kind for one in transcript.branches().calls] == KINDS[name]
    stored = encode_record(record_of(transcript))
    found: list[Call] = []
    for one in read_record(stored).sequences("all"):
        assert (one.mask == one.sampled).all()
        ids = [*one.prompt_ids.tolist(), *one.completion_ids.tolist()]
        first = len(one.prompt_ids)
        found += [
            (ids[: first + start], ids[first + start : first + end], one.log_probs[start:end].tolist())
            for start, end in one.turns
        ]
        assert one.sampled.sum() == sum(end - start for start, end in one.turns)
    assert sorted(found) == sorted(sampled)
    # On disk it is the tree: what calls have in common stands there once.
    alone, before = 0, dict[int, list[int]]()
    for number, call in enumerate(transcript._all):
        prompt, ids, log_probs = sampled[number]
        whole = Tokens(
            prompt_ids=pack_ids(prompt), generation_ids=pack_ids(ids), log_probs=pack_logprobs(log_probs)
        )
        short = shortened(whole, pack_ids(before[call.before.number]) if call.before else b"")
        before[number] = [*prompt, *ids]
        alone += len(
            msgspec.json.encode([short.rest or short.prompt_ids, short.generation_ids, short.log_probs])
        )
    assert len(stored) <= 1.1 * alone
