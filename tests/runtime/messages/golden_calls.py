"""Golden bytes of calls between workers: with only what is required, and with everything."""

from __future__ import annotations

from typing import Any

import msgspec
from gym_runtime.errors import Fault
from gym_runtime.messages import calls
from gym_runtime.messages.call_tokens import CallTokens
from gym_runtime.messages.calls import (
    CallTool,
    CloseSession,
    Compare,
    Control,
    ControlAnswer,
    Declaration,
    DeclaredRole,
    KeptState,
    ModelAnswer,
    ModelCall,
    OpenSession,
    Prefix,
    Request,
    RoleUse,
    RpcReply,
    StepAnswer,
    StepCall,
    Tokens,
    ToolAnswer,
    Verify,
    WeightSpan,
    decode_declaration,
)
from gym_runtime.messages.rollout_spec import Candidate
from gym_runtime.messages.routed_experts import Experts
from msgspec import Raw
from runtime.messages.examples import Decode
from runtime.messages.golden_values import FAULT, FAULT_JSON, decoder

GOLDEN: list[tuple[Decode, Any, bytes]] = [
    (decoder(Fault), Fault(kind="task"), b'{"kind":"task"}'),
    (decoder(Fault), FAULT, FAULT_JSON),
    (
        calls.decode_request,
        Request(body=Raw(b'{"x": 1}'), deadline_s=1800000000.25),
        b'{"body":{"x": 1},"deadline_s":1800000000.25}',
    ),
    (
        calls.decode_request,
        Request(body=Raw(b"[]"), deadline_s=1.5, key="k", rollout="run.0.1", attempt=2),
        b'{"body":[],"deadline_s":1.5,"key":"k","rollout":"run.0.1","attempt":2}',
    ),
    (
        calls.decode_request,
        Request(body=Raw(b"[]"), deadline_s=1.5, retries=0),
        b'{"body":[],"deadline_s":1.5,"retries":0}',
    ),
    (
        calls.decode_request,
        Request(body=Raw(b"[]"), deadline_s=1.5, left_s=0.5, deaths=2, place=True),
        b'{"body":[],"deadline_s":1.5,"left_s":0.5,"deaths":2,"place":true}',
    ),
    (
        calls.decode_request,
        Request(body=Raw(b"[]"), deadline_s=1.5, roles={"judge": "j"}, durable=True, repeated=True),
        b'{"body":[],"deadline_s":1.5,"roles":{"judge":"j"},"durable":true,"repeated":true}',
    ),
    (
        calls.decode_request,
        Request(body=Raw(b"[]"), role_sampling={"judge": {"temperature": 0}}),
        b'{"body":[],"role_sampling":{"judge":{"temperature":0}}}',
    ),
    (calls.decode_request, Request(body=Raw(b"[]"), left_s=0.5), b'{"body":[],"left_s":0.5}'),
    (
        calls.decode_request,
        Request(body=Raw(b"[]"), call_timeout_s=9.0),
        b'{"body":[],"call_timeout_s":9.0}',
    ),
    (calls.decode_request, Request(body=Raw(b"[]"), images=True), b'{"body":[],"images":true}'),
    (calls.decode_reply, RpcReply(), b"{}"),
    (calls.decode_reply, RpcReply(retries=3), b'{"retries":3}'),
    (
        calls.decode_reply,
        RpcReply(role_use={"judge": RoleUse(calls=1, input_tokens=10, output_tokens=2, seconds=0.5)}),
        b'{"role_use":{"judge":{"calls":1,"input_tokens":10,"output_tokens":2,"seconds":0.5}}}',
    ),
    (
        calls.decode_reply,
        RpcReply(body=Raw(b'{"output":"1"}'), fault=FAULT, worker="resource-1", load=0.5),
        b'{"body":{"output":"1"},"fault":' + FAULT_JSON + b',"worker":"resource-1","load":0.5}',
    ),
    (
        calls.decode_model_call,
        ModelCall(params=Raw(b"{}"), input=[]),
        b'{"params":{},"input":[]}',
    ),
    (
        calls.decode_model_call,
        ModelCall(params=Raw(b'{"top_p":1}'), input=[Raw(b'{"role": "user"}')], return_tokens=True),
        b'{"params":{"top_p":1},"input":[{"role": "user"}],"return_tokens":true}',
    ),
    (
        calls.decode_model_call,
        ModelCall(
            params=Raw(b"null"),
            input=[],
            conversation="run.0.0.1",
            known=3,
            prefix=Prefix(ids=b"\x01\x00\x00\x00", items=2, completion=1),
        ),
        b'{"params":null,"input":[],"conversation":"run.0.0.1","known":3,'
        b'"prefix":{"ids":"AQAAAA==","items":2,"completion":1}}',
    ),
    (
        calls.decode_model_call,
        ModelCall(params=Raw(b"null"), input=[], conversation="c", known=3, brief=True, mark=7, count=True),
        b'{"params":null,"input":[],"conversation":"c","known":3,"brief":true,"mark":7,"count":true}',
    ),
    (
        calls.decode_model_call,
        ModelCall(params=Raw(b"{}"), input=[], first=True),
        b'{"params":{},"input":[],"first":true}',
    ),
    (decoder(Prefix), Prefix(ids=b"", items=0), b'{"ids":"","items":0}'),
    (decoder(Prefix), Prefix(ids=b"", items=0, completion=3), b'{"ids":"","items":0,"completion":3}'),
    (calls.decode_control, Control(op="pause"), b'{"op":"pause"}'),
    (
        calls.decode_control,
        Control(op="update", version="step-8", path="/w"),
        b'{"op":"update","version":"step-8","path":"/w"}',
    ),
    (calls.decode_control_answer, ControlAnswer(), b"{}"),
    (calls.decode_draining, calls.Draining(), b"{}"),
    (calls.decode_draining, calls.Draining(in_flight=3, within_s=25.0), b'{"in_flight":3,"within_s":25.0}'),
    (
        calls.decode_control_answer,
        ControlAnswer(paused=True, version="step-8"),
        b'{"paused":true,"version":"step-8"}',
    ),
    (
        decoder(WeightSpan),
        WeightSpan(version="step-7", start=0, end=12),
        b'{"version":"step-7","start":0,"end":12}',
    ),
    (decoder(Tokens), Tokens(), b"{}"),
    (
        decoder(Tokens),
        Tokens(
            prompt_ids=b"\x01\x00\x00\x00",
            generation_ids=b"\x02\x00\x00\x00",
            log_probs=b"\x00\x00\x80\xbf",
            weights=[WeightSpan(version="7", start=0, end=1)],
        ),
        b'{"prompt_ids":"AQAAAA==","generation_ids":"AgAAAA==","log_probs":"AACAvw==",'
        b'"weights":[{"version":"7","start":0,"end":1}]}',
    ),
    (decoder(Tokens), Tokens(same=3, rest=b"\x01\x00\x00\x00"), b'{"same":3,"rest":"AQAAAA=="}'),
    (
        decoder(Tokens),
        Tokens(experts=Experts(layers=1, top_k=1, data=b"\x05")),
        b'{"experts":{"layers":1,"top_k":1,"data":"BQ=="}}',
    ),
    (
        decoder(Experts),
        Experts(layers=1, top_k=1, data=b"\x05\x00", start=4, wide=True),
        b'{"layers":1,"top_k":1,"data":"BQA=","start":4,"wide":true}',
    ),
    (decoder(CallTokens), CallTokens(item=2, tokens=Tokens()), b'{"item":2,"tokens":{}}'),
    (
        decoder(CallTokens),
        CallTokens(item=2, tokens=Tokens(same=3), segment=1),
        b'{"item":2,"tokens":{"same":3},"segment":1}',
    ),
    (calls.decode_model_answer, ModelAnswer(response=Raw(b"{}")), b'{"response":{}}'),
    (
        calls.decode_model_answer,
        ModelAnswer(response=Raw(b"{}"), tokens=Tokens(prompt_ids=b"\x00"), weight_version="7"),
        b'{"response":{},"tokens":{"prompt_ids":"AA=="},"weight_version":"7"}',
    ),
    (
        calls.decode_model_answer,
        ModelAnswer(response=Raw(b"{}"), kept=4, mark=7),
        b'{"response":{},"kept":4,"mark":7}',
    ),
    (calls.decode_resource_call, OpenSession(session="s"), b'{"op":"open","session":"s"}'),
    (
        calls.decode_resource_call,
        OpenSession(session="s", task=Raw(b'{"a":1}')),
        b'{"op":"open","session":"s","task":{"a":1}}',
    ),
    (
        calls.decode_resource_call,
        OpenSession(session="s", restore=Raw(b'{"n":1}'), origins=["q.1.2"]),
        b'{"op":"open","session":"s","restore":{"n":1},"origins":["q.1.2"]}',
    ),
    (
        calls.decode_resource_call,
        CallTool(session="s", name="add", arguments='{"n": 1}', task=Raw(b"{}")),
        b'{"op":"tool","session":"s","task":{},"name":"add","arguments":"{\\"n\\": 1}"}',
    ),
    (
        calls.decode_resource_call,
        StepCall(session="s", task=Raw(b"[]"), response=Raw(b"{}")),
        b'{"op":"step","session":"s","task":[],"response":{}}',
    ),
    (
        calls.decode_resource_call,
        StepCall(session="s", response=Raw(b"{}")),
        b'{"op":"step","session":"s","response":{}}',
    ),
    (
        calls.decode_resource_call,
        Verify(session="s", response=Raw(b"{}"), task=Raw(b"{}")),
        b'{"op":"verify","session":"s","task":{},"response":{}}',
    ),
    (
        calls.decode_resource_call,
        Compare(session="s", task=Raw(b"{}"), candidates=[Candidate(rollout_index=0, features=Raw(b"1"))]),
        b'{"op":"compare","session":"s","task":{},"candidates":[{"rollout_index":0,"features":1}]}',
    ),
    (calls.decode_resource_call, CloseSession(session="s"), b'{"op":"close","session":"s"}'),
    (
        calls.decode_resource_call,
        CloseSession(session="s", more=["t", "u"]),
        b'{"op":"close","session":"s","more":["t","u"]}',
    ),
    (calls.decode_resource_call, calls.Declare(), b'{"op":"declare"}'),
    (
        decode_declaration,
        Declaration(
            name="e",
            agent="a",
            shape="session",
            max_turns=3,
            timeout_s=9.5,
            parallel_tools=True,
            replayable=False,
            roles=[DeclaredRole(name="judge"), DeclaredRole(name="user", optional=True)],
            fields={"n": True},
            tools=[Raw(b"{}")],
            assets=["files"],
            agent_refs=["other"],
            settings={"e_hard": {"n": 2}},
            compares=True,
            opens_first=True,
            repeats=8,
            agent_options={"n": 1},
            agents={"e_hard": ("b", {"m": 2})},
            defaults={"n": 3},
            agent_sampling={"e_cold": {"temperature": 0}},
            reads_input=False,
        ),
        b'{"name":"e","agent":"a","shape":"session","max_turns":3,"timeout_s":9.5,"parallel_tools":true,'
        b'"replayable":false,"roles":[{"name":"judge"},{"name":"user","optional":true}],"fields":{"n":true},'
        b'"tools":[{}],"assets":["files"],"agent_refs":["other"],"settings":{"e_hard":{"n":2}},'
        b'"compares":true,"opens_first":true,"repeats":8,"agent_options":{"n":1},'
        b'"agents":{"e_hard":["b",{"m":2}]},"defaults":{"n":3},'
        b'"agent_sampling":{"e_cold":{"temperature":0}},"reads_input":false}',
    ),
    (
        msgspec.json.Decoder(DeclaredRole).decode,
        DeclaredRole(name="u", optional=True),
        b'{"name":"u","optional":true}',
    ),
    (calls.decode_tool_answer, ToolAnswer(output="ä\n"), '{"output":"ä\\n"}'.encode()),
    (calls.decode_tool_answer, ToolAnswer(output="", saved=Raw(b"[1]")), b'{"output":"","saved":[1]}'),
    (calls.decode_kept_state, KeptState("0f"), b'{"kept":"0f"}'),
    (calls.decode_step_answer, StepAnswer(), b"{}"),
    (calls.decode_step_answer, StepAnswer(saved=Raw(b"[1]")), b'{"saved":[1]}'),
    (
        calls.decode_step_answer,
        StepAnswer(items=[Raw(b"{}")], reward=-0.5, terminated=True, truncated=True),
        b'{"items":[{}],"reward":-0.5,"terminated":true,"truncated":true}',
    ),
    (calls.decode_step_answer, StepAnswer(tools=[Raw(b"{}")]), b'{"tools":[{}]}'),
]
"""(decode, message, its bytes)."""
