"""The bytes of every message, of this version and of older ones."""

from __future__ import annotations

import inspect
import json
from types import ModuleType
from typing import Any

import msgspec
import pytest
from gym_runtime import errors
from gym_runtime.environment import roles as role_models
from gym_runtime.environment.roles import JudgedPending, JudgedVerdict, Role
from gym_runtime.errors import Fault
from gym_runtime.messages import calls, comparison, declaration, items, outcomes, responses, run_info
from gym_runtime.messages import role_use as role_messages
from gym_runtime.messages import rollout_spec as tasks
from gym_runtime.messages.calls import (
    CallTool,
    CloseSession,
    Compare,
    Control,
    ControlAnswer,
    ModelAnswer,
    ModelCall,
    OpenSession,
    Prefix,
    Request,
    RpcReply,
    StepAnswer,
    StepCall,
    Tokens,
    ToolAnswer,
    Verify,
    WeightSpan,
)
from gym_runtime.messages.comparison import Candidate, ComparedVerdict, Comparison, GroupSpan
from gym_runtime.messages.declaration import Declaration, DeclaredRole, decode_declaration
from gym_runtime.messages.figures import Count, Distribution, Figures
from gym_runtime.messages.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    OtherItem,
    Part,
    Reasoning,
)
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, RolloutRecord, Truncated
from gym_runtime.messages.responses import (
    CreateParams,
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    Usage,
)
from gym_runtime.messages.role_use import RoleAnswer, RoleUse
from gym_runtime.messages.rollout_spec import RolloutIdentity, RolloutSpec
from gym_runtime.messages.run_info import RunInfo, decode_run
from gym_runtime.rpc.registry import Heartbeat, decode_heartbeat
from msgspec import Raw
from runtime.messages.examples import Decode, encode

FAULT = Fault(kind="model", name="ModelUnavailable", message="503", stage="model", retryable=True)


FAULT_JSON = b'{"kind":"model","name":"ModelUnavailable","message":"503","stage":"model","retryable":true}'


FIGURES = Figures(
    counts=[
        Count("gym.rollouts", ("e", "failed", "", ""), 3),
        Count("gym.role.time", ("e", "judge"), 0.5),
    ],
    distributions=[Distribution("gym.rollout.reward", ("mcqa",), (1, 0, 2), 0.5)],
    since_s=2.5,
    cpu_s=1.25,
    memory_bytes=4096,
)


FIGURES_JSON = (
    b'{"counts":[["gym.rollouts",["e","failed","",""],3],["gym.role.time",["e","judge"],0.5]],'
    b'"distributions":[["gym.rollout.reward",["mcqa"],[1,0,2],0.5]],"since_s":2.5,"cpu_s":1.25,"memory_bytes":4096}'
)


NULLS = b'"max_output_tokens":null,"max_tool_calls":null'


def decoder(kind: Any) -> Decode:
    return msgspec.json.Decoder(kind).decode


# (decode, message, its bytes): once with only what is required, once with everything.
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
    (calls.decode_reply, RpcReply(), b"{}"),
    (calls.decode_reply, RpcReply(retries=3), b'{"retries":3}'),
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
            prefix=Prefix(ids=b"\x01\x00\x00\x00", items=2),
        ),
        b'{"params":null,"input":[],"conversation":"run.0.0.1","known":3,'
        b'"prefix":{"ids":"AQAAAA==","items":2}}',
    ),
    (decoder(Prefix), Prefix(ids=b"", items=0), b'{"ids":"","items":0}'),
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
    (calls.decode_model_answer, ModelAnswer(response=Raw(b"{}")), b'{"response":{}}'),
    (
        calls.decode_model_answer,
        ModelAnswer(response=Raw(b"{}"), tokens=Tokens(prompt_ids=b"\x00"), weight_version="7"),
        b'{"response":{},"tokens":{"prompt_ids":"AA=="},"weight_version":"7"}',
    ),
    (
        calls.decode_model_answer,
        ModelAnswer(response=Raw(b"{}"), kept=4),
        b'{"response":{},"kept":4}',
    ),
    (calls.decode_resource_call, OpenSession(session="s"), b'{"op":"open","session":"s"}'),
    (
        calls.decode_resource_call,
        OpenSession(session="s", task=Raw(b'{"a":1}')),
        b'{"op":"open","session":"s","task":{"a":1}}',
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
        ),
        b'{"name":"e","agent":"a","shape":"session","max_turns":3,"timeout_s":9.5,"parallel_tools":true,'
        b'"replayable":false,"roles":[{"name":"judge"},{"name":"user","optional":true}],"fields":{"n":true},'
        b'"tools":[{}],"assets":["files"],"agent_refs":["other"],"settings":{"e_hard":{"n":2}},'
        b'"compares":true}',
    ),
    (
        msgspec.json.Decoder(DeclaredRole).decode,
        DeclaredRole(name="u", optional=True),
        b'{"name":"u","optional":true}',
    ),
    (calls.decode_tool_answer, ToolAnswer(output="ä\n"), '{"output":"ä\\n"}'.encode()),
    (calls.decode_step_answer, StepAnswer(), b"{}"),
    (
        calls.decode_step_answer,
        StepAnswer(items=[Raw(b"{}")], reward=-0.5, terminated=True, truncated=True),
        b'{"items":[{}],"reward":-0.5,"terminated":true,"truncated":true}',
    ),
    (calls.decode_step_answer, StepAnswer(tools=[Raw(b"{}")]), b'{"tools":[{}]}'),
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
        ),
        b'{"run":"r","task_index":0,"rollout_index":1,"environment":"mcqa","agent":"tool_loop","row":{},'
        b'"roles":{"judge":"policy"},"role_sampling":{"judge":{"temperature":0}},"max_staleness":0,'
        b'"taken_up":true,"attended":true,"opens_first":true}',
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
        ),
        b'{"run":"r","task_index":0,"rollout_index":1,"environment":"e","outcome":{"type":"completed"},'
        b'"row":{"reward": 1.0},"attempt":2,"reward":0.0,"numbers":{"accuracy":1.0},'
        b'"roles":{"judge":{"calls":2,"input_tokens":30,"output_tokens":4,"seconds":0.5}},"turns":3,'
        b'"tool_calls":4,"duration_s":1.25,"worker":"agent-1"}',
    ),
    (decoder(RoleUse), RoleUse(), b'{"calls":0,"input_tokens":0,"output_tokens":0,"seconds":0.0}'),
    (
        decoder(RoleAnswer),
        RoleAnswer(role="judge", digest="0a", response=Raw(b"{}")),
        b'{"role":"judge","digest":"0a","response":{}}',
    ),
    (decoder(JudgedVerdict), JudgedVerdict(1.0), b'{"reward":1.0}'),
    (
        decoder(JudgedVerdict),
        JudgedVerdict(
            0.5,
            components={"a": 0.5},
            fields={"b": "c"},
            role_use={"judge": RoleUse(calls=1)},
            role_answers=[RoleAnswer(role="judge", digest="0a", response=Raw(b"{}"))],
        ),
        b'{"reward":0.5,"components":{"a":0.5},"fields":{"b":"c"},"role_use":{"judge":{"calls":1,'
        b'"input_tokens":0,"output_tokens":0,"seconds":0.0}},'
        b'"role_answers":[{"role":"judge","digest":"0a","response":{}}]}',
    ),
    (decoder(Figures), Figures(), b"{}"),
    (decoder(Figures), FIGURES, FIGURES_JSON),
    (
        decode_heartbeat,
        Heartbeat(worker="one", kind="model", pools=["policy"]),
        b'{"worker":"one","kind":"model","pools":["policy"]}',
    ),
    (
        decode_heartbeat,
        Heartbeat(
            worker="one",
            kind="agent",
            pools=[],
            host="h",
            pid=7,
            started_s=1.5,
            capacity=8,
            in_use=2,
            load=0.25,
            draining=True,
            places=True,
            detail={"a": "b"},
            figures=FIGURES,
        ),
        b'{"worker":"one","kind":"agent","pools":[],"host":"h","pid":7,"started_s":1.5,"capacity":8,'
        b'"in_use":2,"load":0.25,"draining":true,"places":true,"detail":{"a":"b"},"figures":'
        + FIGURES_JSON
        + b"}",
    ),
    (decode_run, RunInfo(run="r", total=1), b'{"run":"r","total":1}'),
    (
        decode_run,
        RunInfo(
            run="r",
            total=2,
            environments=["mcqa"],
            agents=["single_turn"],
            created_s=1.5,
            state="finished",
            attached=True,
            closed=True,
            model="openai/a",
            done=2,
            failed=1,
            figures=FIGURES,
        ),
        b'{"run":"r","total":2,"environments":["mcqa"],"agents":["single_turn"],"created_s":1.5,'
        b'"state":"finished","attached":true,"closed":true,"model":"openai/a","done":2,"failed":1,'
        b'"figures":' + FIGURES_JSON + b"}",
    ),
    (
        decoder(JudgedPending),
        JudgedPending(
            features=Raw(b'{"x":1}'),
            role_use={"judge": RoleUse(calls=1)},
            role_answers=[RoleAnswer(role="judge", digest="0a", response=Raw(b"{}"))],
        ),
        b'{"features":{"x":1},"role_use":{"judge":{"calls":1,"input_tokens":0,"output_tokens":0,'
        b'"seconds":0.0}},"role_answers":[{"role":"judge","digest":"0a","response":{}}]}',
    ),
    (decoder(Part), Part(type="output_text", text="a"), b'{"type":"output_text","text":"a"}'),
    (
        decoder(Part),
        Part(type="x", text="a", image_url="u", refusal="no", annotations=[1]),
        b'{"type":"x","text":"a","image_url":"u","refusal":"no","annotations":[1]}',
    ),
    (decoder(Message), Message(role="user", content="a"), b'{"type":"message","role":"user","content":"a"}'),
    (
        decoder(Message),
        Message(role="assistant", content=[Part(type="output_text", text="a")], id="m", status="completed"),
        b'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}],"id":"m",'
        b'"status":"completed"}',
    ),
    (decoder(Reasoning), Reasoning(), b'{"type":"reasoning"}'),
    (
        decoder(Reasoning),
        Reasoning(
            id="r",
            summary=[Part(type="summary_text", text="a")],
            content=[Part(type="reasoning_text", text="b")],
            encrypted_content="c",
            status="completed",
        ),
        b'{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"a"}],'
        b'"content":[{"type":"reasoning_text","text":"b"}],"encrypted_content":"c","status":"completed"}',
    ),
    (
        decoder(FunctionCall),
        FunctionCall(call_id="c", name="add", arguments="{"),
        b'{"type":"function_call","call_id":"c","name":"add","arguments":"{"}',
    ),
    (
        decoder(FunctionCall),
        FunctionCall(call_id="c", name="add", arguments="{}", id="f", status="completed"),
        b'{"type":"function_call","call_id":"c","name":"add","arguments":"{}","id":"f","status":"completed"}',
    ),
    (
        decoder(FunctionCallOutput),
        FunctionCallOutput(call_id="c", output="1"),
        b'{"type":"function_call_output","call_id":"c","output":"1"}',
    ),
    (
        decoder(FunctionCallOutput),
        FunctionCallOutput(call_id="c", output=[Part(type="t", text="1")], id="o", status="completed"),
        b'{"type":"function_call_output","call_id":"c","output":[{"type":"t","text":"1"}],"id":"o",'
        b'"status":"completed"}',
    ),
    (decoder(OtherItem), OtherItem(type="web_search_call"), b'{"type":"web_search_call"}'),
    (decoder(InputTokensDetails), InputTokensDetails(cached_tokens=1), b'{"cached_tokens":1}'),
    (decoder(OutputTokensDetails), OutputTokensDetails(reasoning_tokens=1), b'{"reasoning_tokens":1}'),
    (
        decoder(Usage),
        Usage(input_tokens=1, output_tokens=2, total_tokens=3),
        b'{"input_tokens":1,"input_tokens_details":{"cached_tokens":0},"output_tokens":2,'
        b'"output_tokens_details":{"reasoning_tokens":0},"total_tokens":3}',
    ),
    (
        decoder(IncompleteDetails),
        IncompleteDetails(reason="max_output_tokens"),
        b'{"reason":"max_output_tokens"}',
    ),
    (
        responses.decode_response,
        Response(id="resp", output=[Raw(b'{"type": "reasoning"}')], usage=Usage()),
        b'{"id":"resp","created_at":0.0,"error":null,"incomplete_details":null,"instructions":null,'
        b'"metadata":null,"model":"","object":"response","output":[{"type": "reasoning"}],'
        b'"parallel_tool_calls":true,"temperature":null,"tool_choice":"auto","tools":[],"top_p":null,'
        b'"background":null,"conversation":null,' + NULLS + b',"previous_response_id":null,"prompt":null,'
        b'"prompt_cache_key":null,"reasoning":null,"safety_identifier":null,"service_tier":null,'
        b'"status":"completed","store":null,"text":null,"top_logprobs":null,"truncation":null,"usage":{'
        b'"input_tokens":0,"input_tokens_details":{"cached_tokens":0},"output_tokens":0,'
        b'"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0},"user":null}',
    ),
    (
        responses.decode_params,
        CreateParams(),
        b'{"background":null,"include":null,"input":[],"instructions":null,' + NULLS + b',"metadata":null,'
        b'"model":null,"parallel_tool_calls":true,"previous_response_id":null,"prompt":null,'
        b'"reasoning":null,"service_tier":null,"store":null,"temperature":null,"text":null,'
        b'"tool_choice":"auto","tools":[],"top_logprobs":null,"top_p":null,"truncation":null,"user":null,'
        b'"stream":null}',
    ),
]


IDS = [f"{type(message).__name__}-{number}" for number, (_, message, _) in enumerate(GOLDEN)]


WIRE = [golden for golden in GOLDEN if not isinstance(golden[1], CreateParams)]


ABSTRACT = {Item, calls.SessionCall, Role}


def structs(module: ModuleType) -> set[type]:
    return {
        cls
        for name, cls in vars(module).items()
        if inspect.isclass(cls)
        and issubclass(cls, msgspec.Struct)
        and cls.__module__ == module.__name__
        and not name.startswith("_")
    }


def test_every_message_has_golden_bytes() -> None:
    modules = (
        *(calls, comparison, declaration, items, outcomes, responses, role_messages, role_models, tasks),
        *(run_info, errors),
    )
    there = set[type]().union(*map(structs, modules))
    elsewhere = {Figures, Heartbeat}
    assert there - ABSTRACT == {type(message) for _, message, _ in GOLDEN} - elsewhere


def test_every_field_is_in_golden_bytes() -> None:
    shown: dict[type, set[str]] = {}
    for _, message, golden in GOLDEN:
        shown.setdefault(type(message), set()).update(json.loads(golden))
    hidden = {
        f"{cls.__name__}.{field}"
        for cls, fields in shown.items()
        for field in cls.__struct_encode_fields__
        if field not in fields
    }
    # A closing call carries no task; it only inherits the field.
    assert hidden == {"CloseSession.task"}


@pytest.mark.parametrize(("decode", "message", "golden"), GOLDEN, ids=IDS)
def test_golden_bytes(decode: Decode, message: Any, golden: bytes) -> None:
    assert encode(message) == golden
    assert decode(golden) == message
    assert encode(decode(golden)) == golden


@pytest.mark.parametrize(("decode", "message", "golden"), WIRE, ids=[i for i in IDS if "Params" not in i])
def test_fields_of_a_newer_version_are_ignored(decode: Decode, message: Any, golden: bytes) -> None:
    comma = b"" if golden == b"{}" else b","
    newer = b'{"zz_new":{"deep":[1,null,"x"]}' + comma + golden[1:-1] + b',"zz_too":[]}'
    assert decode(newer) == message


@pytest.mark.parametrize(
    ("decode", "old", "message"),
    [
        (decoder(Fault), b'{"kind":"task"}', Fault(kind="task", retryable=False, stage="")),
        (
            calls.decode_request,
            b'{"body":{},"deadline_s":1}',
            Request(body=Raw(b"{}"), deadline_s=1.0, key="", rollout="", attempt=1),
        ),
        (calls.decode_reply, b"{}", RpcReply(body=Raw(b"null"), fault=None, worker="", load=0.0)),
        (calls.decode_model_call, b'{"params":{},"input":[]}', ModelCall(params=Raw(b"{}"), input=[])),
        (calls.decode_model_answer, b'{"response":{}}', ModelAnswer(response=Raw(b"{}"), tokens=None)),
        (calls.decode_step_answer, b"{}", StepAnswer(items=[], reward=0.0)),
        (
            outcomes.decode_record,
            b'{"run":"r","task_index":0,"rollout_index":0,"environment":"e","outcome":{"type":"completed"},'
            b'"row":{}}',
            RolloutRecord(
                run="r", task_index=0, rollout_index=0, environment="e", outcome=Completed(), row=Raw(b"{}")
            ),
        ),
        (responses.decode_response, b"{}", Response()),
        (decoder(Usage), b"{}", Usage()),
    ],
)
def test_fields_that_an_older_version_lacks_have_defaults(decode: Decode, old: bytes, message: Any) -> None:
    assert decode(old) == message


@pytest.mark.parametrize("op", [b'"dance"', b"null", b"1"])
def test_an_unknown_call_is_refused(op: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        calls.decode_resource_call(b'{"op":' + op + b',"session":"s"}')


def test_whether_a_call_opens_its_session() -> None:
    assert not calls.opens(CloseSession(session="s"))
    assert not calls.opens(calls.decode_resource_call(b'{"op":"close","session":"s","task":null}'))
    assert calls.opens(calls.decode_resource_call(b'{"op":"open","session":"s","task":{}}'))


def test_an_envelope_does_not_decode_its_body() -> None:
    body = b'{"a" :\t[1.0, 1e400],"a":2}'
    request = calls.decode_request(b'{"body":' + body + b',"deadline_s":1}')
    assert bytes(request.body) == body
    assert bytes(calls.pack(ToolAnswer(output="x"))) == b'{"output":"x"}'


def test_the_rollout_id_is_the_same_from_task_to_record() -> None:
    where = {"run": "r", "task_index": 4, "rollout_index": 2, "environment": "e"}
    task = RolloutSpec(**where, agent="a", row=Raw(b"{}"))
    record = RolloutRecord(**where, outcome=Completed(), row=Raw(b"{}"))
    assert task.rollout_id == record.rollout_id == "r.4.2"
