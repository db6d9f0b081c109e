"""``/seed_session``, tools and ``/verify``; the head server; metrics; who may ask."""

from __future__ import annotations

import base64

import msgspec
import pytest
from faces.gym_server.running_server import (
    COUNTER,
    INCREMENT,
    choice_row,
    counter_row,
    response,
    running_server,
)
from gym_faces.gateway.admission import Admission
from gym_faces.gym_server.agent_directory import agents_yaml
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool
from gym_testing.background import settled
from gym_testing.small_system import environment, message

pytestmark = pytest.mark.anyio
ANSWERED = {"type": "function_call_output", "call_id": "c1", "output": "{}"}


class Failing(Session[Task]):
    """Its tools break."""

    @tool
    def crash(self) -> str:
        """Raise."""
        raise ValueError("boom")

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float("nan"))


FAILING = environment(Environment(resource=Failing, description="Fails."), "failing_here")


async def test_a_session_is_driven_over_http_and_ends_with_its_verdict() -> None:
    async with running_server() as here:
        row = counter_row(note="kept")
        seeded = await here.post("/seed_session", row)
        assert (seeded.status, seeded.body) == (200, {})
        cookies = seeded.cookies
        assert len(cookies["gym_session"]) >= 32
        called = await here.post("/increment_counter", {"count": 1}, cookies)
        assert (called.status, called.body["success"]) == (200, True)
        assert (await here.post("/get_counter_value", b"", cookies)).body == {"count": 4}
        assert (await here.post("/get_counter_value", b"{}", cookies)).body == {"count": 4}
        assert (await here.post("/increment_counter", {"count": "x"}, cookies)).status == 422
        assert (await here.post("/no_such_tool", {}, cookies)).body == {"detail": "Not Found"}
        judged = await here.post("/verify", {**row, "response": response(message("done"))}, cookies)
        assert (judged.status, judged.body["reward"], judged.body["note"]) == (200, 1.0, "kept")
        assert judged.body["response"]["id"] == "resp_1"
        assert judged.body["responses_create_params"] == row["responses_create_params"]
        await settled(lambda: not len(here.resource.sessions))
        again = await here.post("/verify", {**row, "response": response(message("done"))}, cookies)
        assert again.body == judged.body
        other = await here.post("/verify", {**row, "response": response(message("more"))}, cookies)
        assert other.status == 422


async def test_paths_may_name_the_environment() -> None:
    async with running_server() as here:
        row = counter_row()
        del row["agent_ref"]
        cookies = (await here.post(f"/{COUNTER}/seed_session", row)).cookies
        assert (await here.post(f"/{COUNTER}/increment_counter", {"count": 2}, cookies)).status == 200
        judged = await here.post(f"/{COUNTER}/verify", {**row, "response": response()}, cookies)
        assert judged.body["reward"] == 0.0
        assert (await here.post("/mcqa/get_counter_value", {}, cookies)).status == 422
        assert (await here.post("/nothing/get_counter_value", {}, cookies)).status == 404
        assert (await here.get("/mcqa")).status == 200
        assert (await here.get("/nothing")).status == 404


async def test_a_verdict_needs_no_session_if_the_transcript_holds_the_calls() -> None:
    async with running_server() as here:
        row = counter_row()
        said = response(INCREMENT, ANSWERED, message("done"))
        assert (await here.post("/verify", {**row, "response": said})).body["reward"] == 1.0
        for text, reward in (("\\boxed{B}", 1.0), ("\\boxed{A}", 0.0)):
            # Unsloth's notebooks send neither id nor usage, and no cookie.
            body = {**choice_row(), "response": {"output": [message(text)]}}
            assert (await here.post("/verify", body)).body["reward"] == reward
        await settled(lambda: not len(here.resource.sessions))


async def test_a_lost_session_is_an_error_and_no_reward() -> None:
    async with running_server() as here:
        row = counter_row()
        told = await here.post("/increment_counter", {"count": 1})
        assert (told.status, "POST /seed_session" in told.body["detail"]) == (422, True)
        body = {**row, "response": response(message("done"))}
        gone = await here.post("/verify", body, {"gym_session": "of an earlier server"})
        assert (gone.status, "seed another one" in gone.body["detail"]) == (503, True)
        assert (await here.post("/verify", row)).status == 422
        assert (await here.post("/verify", {**row, "response": {"output": 3}})).status == 422
        assert (await here.post("/seed_session", {**row, "initial_count": "x"})).status == 422


async def test_a_verifier_that_breaks_and_a_tool_that_raises() -> None:
    async with running_server(environments=(FAILING,)) as here:
        row = {"responses_create_params": {"input": "x"}}
        cookies = (await here.post("/seed_session", row)).cookies
        crashed = await here.post("/crash", {}, cookies)
        assert (crashed.status, crashed.body) == (500, "Internal Server Error")
        judged = await here.post("/verify", {**row, "response": response()}, cookies)
        assert judged.status == 503
        assert "reward = nan" in judged.body["detail"]


async def test_sessions_end_with_the_server() -> None:
    async with running_server() as here:
        await here.post("/seed_session", counter_row())
        assert len(here.resource.sessions) == 1
        async with here.server.working():
            pass
        await settled(lambda: not len(here.resource.sessions))


# -- the head server -------------------------------------------------------------------------------------


async def test_the_head_server_names_every_agent_at_the_address_by_which_it_was_reached() -> None:
    async with running_server() as here:
        told = await here.get("/global_config_dict_yaml")
        assert isinstance(told.body, str)  # a text in JSON, whose content is YAML
        config = msgspec.json.decode(told.body)
        port = int(here.url.rpartition(":")[2])
        address = {"host": "127.0.0.1", "port": port}
        assert config["head_server"] == address
        assert config["mcqa_simple_agent"] == {"responses_api_agents": {"simple_agent": address}}
        ref = {"type": "responses_api_agents", "name": "mcqa_simple_agent"}
        assert config["mcqa_simple_agent_environment"] == {
            "environment_servers": {"legacy_agent": {**address, "agent_server": ref}}
        }
        assert config["mcqa"]["resources_servers"]["mcqa"]["port"] == port
        assert (await here.get("/server_instances")).body == []
        assert (await here.get("/")).status == 200
        by_name = await here.get("/global_config_dict_yaml", host=f"localhost:{port}")
        assert msgspec.json.decode(by_name.body)["head_server"]["host"] == "localhost"


async def test_the_yaml_of_external_agents() -> None:
    yaml = pytest.importorskip("yaml")
    async with running_server() as here:
        text = agents_yaml(here.server.served.environments.values(), "10.0.0.1", 11000)
        blocks = yaml.safe_load(text)
        agent = blocks[f"{COUNTER}_simple_agent"]["responses_api_agents"]["simple_agent"]
        assert agent == {"host": "10.0.0.1", "port": 11000}
        assert "entrypoint" not in text.partition("\n")[2]


async def test_metrics_of_result_rows() -> None:
    async with running_server() as here:
        rows = [
            {"_ng_task_index": task, "_ng_rollout_index": turn, "reward": float(turn), "accuracy": task}
            for task in (0, 1)
            for turn in (0, 1)
        ]
        told = await here.post("/aggregate_metrics", {"verify_responses": rows})
        assert told.status == 200
        assert told.body["agent_metrics"]["mean/reward"] == 0.5
        assert told.body["key_metrics"]["mean/accuracy"] == 0.5
        assert [one["_ng_task_index"] for one in told.body["group_level_metrics"]] == [0, 1]
        empty = await here.post("/aggregate_metrics", {"verify_responses": []})
        assert empty.body == {"agent_metrics": {}, "key_metrics": {}, "group_level_metrics": []}
        wrong = await here.post("/aggregate_metrics", {"verify_responses": [{"reward": 1}]})
        assert wrong.status == 422


# -- who may ask -----------------------------------------------------------------------------------------


async def test_web_pages_and_foreign_names_are_refused() -> None:
    async with running_server() as here:
        assert (await here.post("/run", counter_row(), origin="http://evil.example")).status == 403
        assert (await here.get("/global_config_dict_yaml", host="evil.example")).status == 403
        assert (await here.post("/run", counter_row(), content_type="text/plain")).status == 415
        assert (await here.get("/run")).status == 404
        assert not here.engine.calls.items


async def test_a_key_is_demanded_of_every_request_and_told_to_those_that_have_it() -> None:
    async with running_server(key="s3cret") as here:
        basic = "Basic " + base64.b64encode(b"gym:s3cret").decode()
        for wrong in ({}, {"authorization": "Bearer other"}, {"authorization": "Basic !!"}):
            assert (await here.get("/global_config_dict_yaml", **wrong)).status == 401
            assert (await here.post("/run", counter_row(), **wrong)).status == 401
        told = await here.get("/global_config_dict_yaml", authorization=basic)
        assert msgspec.json.decode(told.body)["head_server"]["host"] == "gym:s3cret@127.0.0.1"
        assert (await here.post("/run", counter_row(), authorization="Bearer s3cret")).body["reward"] == 1.0


async def test_bodies_and_requests_have_limits() -> None:
    async with running_server(admission=Admission(1, max_bytes=2000)) as here:
        told = await here.post("/run", counter_row(note="x" * 3000))
        assert told.status == 503
        assert here.server.admission.held_bytes == 0
        assert (await here.post("/run", counter_row())).status == 200
