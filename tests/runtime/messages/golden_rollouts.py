"""Golden bytes of rollouts, comparisons and records: with only what is required, and with everything."""

from __future__ import annotations

from typing import Any

from gym_runtime.messages import outcomes
from gym_runtime.messages import rollout_spec as tasks
from gym_runtime.messages.branches import BranchCall
from gym_runtime.messages.call_tokens import CallTokens, Tokens
from gym_runtime.messages.calls import ComparedVerdict, Comparison, RoleAnswer, RoleUse
from gym_runtime.messages.fork import Fork, ForkTurn
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, RolloutRecord, Truncated
from gym_runtime.messages.rollout_spec import Candidate, GroupSpan, RolloutIdentity, RolloutSpec
from msgspec import Raw
from runtime.messages.examples import Decode
from runtime.messages.golden_values import FAULT, FAULT_JSON, decoder

GOLDEN: list[tuple[Decode, Any, bytes]] = [
    (
        tasks.decode_identity,
        RolloutIdentity(run="r", task_index=0, rollout_index=1),
        b'{"run":"r","task_index":0,"rollout_index":1,"environment":"","attempt_base":0}',
    ),
    (
        tasks.decode_identity,
        RolloutIdentity(run="r", task_index=0, rollout_index=1, group=GroupSpan(0, 2)),
        b'{"run":"r","task_index":0,"rollout_index":1,"environment":"","attempt_base":0,'
        b'"group":{"first":0,"size":2}}',
    ),
    (
        tasks.decode_spec,
        RolloutSpec(
            run="r",
            task_index=0,
            rollout_index=1,
            environment="mcqa",
            agent="tool_loop",
            row=Raw(b'{"x": 1}'),
        ),
        b'{"run":"r","task_index":0,"rollout_index":1,"environment":"mcqa","agent":"tool_loop",'
        b'"row":{"x": 1}}',
    ),
    (
        tasks.decode_spec,
        RolloutSpec(
            run="r",
            task_index=0,
            rollout_index=1,
            environment="mcqa",
            agent="tool_loop",
            row=Raw(b"{}"),
            agent_ref=Raw(b'{"name":"simple"}'),
            model="judge",
            timeout_s=60.0,
            max_attempts=1,
            max_turns=8,
            parallel_tools=True,
            replayable=False,
            durability="result",
            return_tokens=True,
            attempt_base=2,
        ),
        b'{"run":"r","task_index":0,"rollout_index":1,"environment":"mcqa","agent":"tool_loop","row":{},'
        b'"agent_ref":{"name":"simple"},"model":"judge","timeout_s":60.0,"max_attempts":1,"max_turns":8,'
        b'"parallel_tools":true,"replayable":false,"durability":"result","return_tokens":true,"attempt_base":2}',
    ),
    (
        tasks.decode_spec,
        RolloutSpec(
            run="r",
            task_index=0,
            rollout_index=1,
            environment="mcqa",
            agent="tool_loop",
            row=Raw(b"{}"),
            roles={"judge": "policy"},
            role_sampling={"judge": {"temperature": 0}},
            max_staleness=0,
            taken_up=True,
            attached=True,
            opens_first=True,
            agent_options={"max_time_s": 9},
            packed_tokens=True,
            names_images=True,
            has_row=True,
            call_timeout_s=9.0,
            skip_verification=0.5,
            reads_input=False,
            steps=True,
        ),
        b'{"run":"r","task_index":0,"rollout_index":1,"environment":"mcqa","agent":"tool_loop","row":{},'
        b'"roles":{"judge":"policy"},"role_sampling":{"judge":{"temperature":0}},"max_staleness":0,'
        b'"taken_up":true,"attended":true,"opens_first":true,"agent_options":{"max_time_s":9},'
        b'"packed_tokens":true,"names_images":true,"has_row":true,"call_timeout_s":9.0,"skip_verification":0.5,'
        b'"reads_input":false,"steps":true}',
    ),
    (
        tasks.decode_spec,
        RolloutSpec(
            run="r",
            task_index=0,
            rollout_index=-2,
            environment="e",
            agent="a",
            row=Raw(b"{}"),
            group=GroupSpan(1, 4),
            candidates=[Candidate(rollout_index=1, features=Raw(b'{"x":1}'))],
        ),
        b'{"run":"r","task_index":0,"rollout_index":-2,"environment":"e","agent":"a","row":{},'
        b'"group":{"first":1,"size":4},"candidates":[{"rollout_index":1,"features":{"x":1}}]}',
    ),
    (
        tasks.decode_spec,
        RolloutSpec(
            run="r",
            task_index=0,
            rollout_index=1,
            environment="e",
            agent="a",
            row=Raw(b"{}"),
            fork=Fork(
                rollout_id="q.1.2",
                task_index=1,
                rollout_index=2,
                turns=[ForkTurn(response=Raw(b"{}"), weight_version="step-1", after=[Raw(b'{"x":1}')])],
                outputs={"call_1": "no"},
                changed=["tool_output"],
                on_difference="go_on",
                saved="0f",
                saved_turn=1,
                saved_in=["q.1.2"],
            ),
        ),
        b'{"run":"r","task_index":0,"rollout_index":1,"environment":"e","agent":"a","row":{},'
        b'"fork":{"rollout_id":"q.1.2","task_index":1,"rollout_index":2,'
        b'"turns":[{"response":{},"weight_version":"step-1","after":[{"x":1}]}],'
        b'"outputs":{"call_1":"no"},"changed":["tool_output"],"on_difference":"go_on",'
        b'"saved":"0f","saved_turn":1,"saved_in":["q.1.2"]}}',
    ),
    (decoder(GroupSpan), GroupSpan(0, 16), b'{"first":0,"size":16}'),
    (
        decoder(Candidate),
        Candidate(rollout_index=3, features=Raw(b"[1]")),
        b'{"rollout_index":3,"features":[1]}',
    ),
    (
        decoder(ComparedVerdict),
        ComparedVerdict(
            rollout_index=3, reward=0.5, components={"a": 0.5}, fields={"b": Raw(b'"c"')}, fault=FAULT
        ),
        b'{"rollout_index":3,"reward":0.5,"components":{"a":0.5},"fields":{"b":"c"},"fault":'
        + FAULT_JSON
        + b"}",
    ),
    (
        decoder(ComparedVerdict),
        ComparedVerdict(rollout_index=3, reward=0.5, rewards={"first": 0.5}),
        b'{"rollout_index":3,"reward":0.5,"rewards":{"first":0.5}}',
    ),
    (
        decoder(Comparison),
        Comparison(
            verdicts=[ComparedVerdict(rollout_index=0, reward=1.0)],
            role_use={"judge": RoleUse(calls=1)},
            role_answers=[RoleAnswer(role="judge", digest="0a", response=Raw(b"{}"))],
        ),
        b'{"verdicts":[{"rollout_index":0,"reward":1.0}],"role_use":{"judge":{"calls":1,"input_tokens":0,'
        b'"output_tokens":0,"seconds":0.0}},"role_answers":[{"role":"judge","digest":"0a","response":{}}]}',
    ),
    (
        decoder(outcomes.Waiting),
        outcomes.Waiting(
            features=Raw(b"{}"),
            task=RolloutSpec(
                run="r", task_index=0, rollout_index=1, environment="e", agent="a", row=Raw(b"null")
            ),
        ),
        b'{"features":{},"task":{"run":"r","task_index":0,"rollout_index":1,"environment":"e","agent":"a",'
        b'"row":null}}',
    ),
    (
        outcomes.decode_record,
        RolloutRecord(
            run="r",
            task_index=0,
            rollout_index=1,
            environment="e",
            outcome=Completed(),
            row=Raw(b"{}"),
            group=GroupSpan(0, 4),
            waiting=outcomes.Waiting(
                features=Raw(b"1"),
                task=RolloutSpec(
                    run="r", task_index=0, rollout_index=1, environment="e", agent="a", row=Raw(b"null")
                ),
            ),
            comparison=Comparison(verdicts=[]),
        ),
        b'{"run":"r","task_index":0,"rollout_index":1,"environment":"e","outcome":{"type":"completed"},'
        b'"row":{},"group":{"first":0,"size":4},"waiting":{"features":1,"task":{"run":"r","task_index":0,'
        b'"rollout_index":1,"environment":"e","agent":"a","row":null}},"comparison":{"verdicts":[]}}',
    ),
    (
        decoder(outcomes.LeftOut),
        outcomes.LeftOut(start=2, size=9, crc32=7),
        b'{"start":2,"size":9,"crc32":7}',
    ),
    (decoder(outcomes.Outcome), Completed(), b'{"type":"completed"}'),
    (
        decoder(outcomes.Outcome),
        Truncated(reason="max_turns"),
        b'{"type":"truncated","reason":"max_turns"}',
    ),
    (decoder(outcomes.Outcome), Failed(fault=FAULT), b'{"type":"failed","fault":' + FAULT_JSON + b"}"),
    (decoder(outcomes.Outcome), Cancelled(), b'{"type":"cancelled"}'),
    (
        outcomes.decode_record,
        RolloutRecord(
            run="r", task_index=0, rollout_index=1, environment="e", outcome=Cancelled(), row=Raw(b"{}")
        ),
        b'{"run":"r","task_index":0,"rollout_index":1,"environment":"e","outcome":{"type":"cancelled"},"row":{}}',
    ),
    (
        outcomes.decode_record,
        RolloutRecord(
            run="r",
            task_index=0,
            rollout_index=1,
            environment="e",
            outcome=Completed(),
            row=Raw(b'{"reward": 1.0}'),
            attempt=2,
            reward=0.0,
            numbers={"accuracy": 1.0},
            roles={"judge": RoleUse(calls=2, input_tokens=30, output_tokens=4, seconds=0.5)},
            turns=3,
            tool_calls=4,
            duration_s=1.25,
            worker="agent-1",
            tokens=[CallTokens(item=0, tokens=Tokens(generation_ids=b"\x02\x00\x00\x00"))],
        ),
        b'{"run":"r","task_index":0,"rollout_index":1,"environment":"e","outcome":{"type":"completed"},'
        b'"row":{"reward": 1.0},"attempt":2,"reward":0.0,"numbers":{"accuracy":1.0},'
        b'"roles":{"judge":{"calls":2,"input_tokens":30,"output_tokens":4,"seconds":0.5}},"turns":3,'
        b'"tool_calls":4,"duration_s":1.25,"worker":"agent-1",'
        b'"tokens":[{"item":0,"tokens":{"generation_ids":"AgAAAA=="}}]}',
    ),
    (
        outcomes.decode_record,
        RolloutRecord(
            run="r",
            task_index=0,
            rollout_index=1,
            environment="e",
            outcome=Completed(),
            row=Raw(b"{}"),
            reward=1.0,
            seat="first",
            rewards={"first": 1.0, "second": -1.0},
            images=True,
            left_out=outcomes.LeftOut(start=2, size=9, crc32=7),
        ),
        b'{"run":"r","task_index":0,"rollout_index":1,"environment":"e","outcome":{"type":"completed"},'
        b'"row":{},"reward":1.0,"seat":"first","rewards":{"first":1.0,"second":-1.0},"images":true,'
        b'"left_out":{"start":2,"size":9,"crc32":7}}',
    ),
    (
        decoder(BranchCall),
        BranchCall(
            kind="retry", parent=0, item=2, tokens=Tokens(same=1, rest=b"\x02\x00\x00\x00"), seat="second"
        ),
        b'{"kind":"retry","parent":0,"item":2,"tokens":{"same":1,"rest":"AgAAAA=="},"seat":"second"}',
    ),
]
"""(decode, message, its bytes)."""
