"""Golden bytes of roles, figures, members, runs and responses: required fields only, and all fields."""

from __future__ import annotations

from typing import Any

from gym_runtime.environment.roles import JudgedPending, JudgedVerdict
from gym_runtime.messages import responses
from gym_runtime.messages.alarms import Alarm
from gym_runtime.messages.calls import RoleAnswer, RoleUse
from gym_runtime.messages.metric_names import Figures
from gym_runtime.messages.responses import (
    CreateParams,
    FunctionCall,
    FunctionCallOutput,
    IncompleteDetails,
    InputTokensDetails,
    Message,
    OtherItem,
    OutputTokensDetails,
    Part,
    Reasoning,
    Response,
    Usage,
)
from gym_runtime.messages.run_control import RunControl, decode_control
from gym_runtime.messages.stored_records import (
    Asked,
    CurrentWeights,
    RunInfo,
    decode_current_weights,
    decode_run,
    read_asked,
)
from gym_runtime.rpc.members import Heartbeat, decode_heartbeat
from msgspec import Raw
from runtime.messages.examples import Decode
from runtime.messages.golden_values import FIGURES, FIGURES_JSON, NULLS, decoder

GOLDEN: list[tuple[Decode, Any, bytes]] = [
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
            rewards={"first": 0.5},
            role_use={"judge": RoleUse(calls=1)},
            role_answers=[RoleAnswer(role="judge", digest="0a", response=Raw(b"{}"))],
        ),
        b'{"reward":0.5,"components":{"a":0.5},"fields":{"b":"c"},"rewards":{"first":0.5},"role_use":{"judge":{"calls":1,'
        b'"input_tokens":0,"output_tokens":0,"seconds":0.0}},'
        b'"role_answers":[{"role":"judge","digest":"0a","response":{}}]}',
    ),
    (
        decoder(RoleAnswer),
        RoleAnswer(role="judge", digest="0a", response=Raw(b"{}"), question="Is it right?"),
        b'{"role":"judge","digest":"0a","response":{},"question":"Is it right?"}',
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
    (decode_current_weights, CurrentWeights(), b"{}"),
    (
        decode_current_weights,
        CurrentWeights(path="/w/1", version="step-1"),
        b'{"path":"/w/1","version":"step-1"}',
    ),
    (
        decode_heartbeat,
        Heartbeat(worker="one", kind="model", pools=["policy"], round_trip_s=0.5),
        b'{"worker":"one","kind":"model","pools":["policy"],"round_trip_s":0.5}',
    ),
    (
        decode_heartbeat,
        Heartbeat(worker="one", kind="resource", pools=["shop"], closes_many=True, names_images=True),
        b'{"worker":"one","kind":"resource","pools":["shop"],"closes_many":true,"names_images":true}',
    ),
    (
        decode_heartbeat,
        Heartbeat(worker="one", kind="resource", pools=["shop"], crashed="zero"),
        b'{"worker":"one","kind":"resource","pools":["shop"],"crashed":"zero"}',
    ),
    (
        decode_heartbeat,
        Heartbeat(worker="one", kind="resource", pools=["shop"], killed="zero"),
        b'{"worker":"one","kind":"resource","pools":["shop"],"killed":"zero"}',
    ),
    (
        decode_heartbeat,
        Heartbeat(worker="one", kind="resource", pools=["shop"], refused="no space"),
        b'{"worker":"one","kind":"resource","pools":["shop"],"refused":"no space"}',
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
            cancelled_by="ann@node7",
            cancelled_s=2.5,
            tasks=2,
        ),
        b'{"run":"r","total":2,"environments":["mcqa"],"agents":["single_turn"],"created_s":1.5,'
        b'"state":"finished","attached":true,"closed":true,"model":"openai/a","done":2,"failed":1,'
        b'"figures":' + FIGURES_JSON + b',"cancelled_by":"ann@node7","cancelled_s":2.5,"tasks":2}',
    ),
    (decode_run, RunInfo(run="r", total=8, repeats=8), b'{"run":"r","total":8,"repeats":8}'),
    (
        decode_run,
        RunInfo(run="r", total=8, share=2.0, priority=1),
        b'{"run":"r","total":8,"share":2.0,"priority":1}',
    ),
    (
        decode_run,
        RunInfo(
            run="r",
            total=8,
            alarms=[
                Alarm(
                    environment="mcqa",
                    since_version="step-3",
                    since_rollout="r.1.0",
                    looks=20,
                    disagree=18,
                    low=0.5,
                    high=0.75,
                    usual=0.25,
                    rollouts=["r.2.0"],
                )
            ],
        ),
        b'{"run":"r","total":8,"alarms":[{"environment":"mcqa","since_version":"step-3","since_rollout":"r.1.0",'
        b'"looks":20,"disagree":18,"low":0.5,"high":0.75,"usual":0.25,"rollouts":["r.2.0"]}]}',
    ),
    (decode_control, RunControl(run="r"), b'{"run":"r"}'),
    (
        decode_control,
        RunControl(
            run="r",
            paused=True,
            concurrency=8,
            max_attempts=2,
            max_turns=9,
            timeout_s=1.5,
            call_timeout_s=0.5,
            share=2.5,
            priority=-1,
            by="ann@node7",
            at_s=2.5,
        ),
        b'{"run":"r","paused":true,"concurrency":8,"max_attempts":2,"max_turns":9,"timeout_s":1.5,'
        b'"call_timeout_s":0.5,"share":2.5,"priority":-1,"by":"ann@node7","at_s":2.5}',
    ),
    (read_asked, Asked(by="ann@node7", at_s=2.5), b'{"by":"ann@node7","at_s":2.5}'),
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
"""(decode, message, its bytes)."""
