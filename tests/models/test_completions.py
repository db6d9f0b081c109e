"""``/v1/completions`` for base models, of a real HTTP server; sounds, videos, sampling that is pinned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import msgspec
import pytest
from gym_faces.dialects import completions, side_channel
from gym_faces.dialects.chat_messages import write_messages
from gym_models.wire.pinned import pinned
from gym_runtime.adapters import ModelCall
from gym_runtime.errors import GymError, ModelRefused, ModelUnavailable, TaskError
from models.json_server import JsonHandler, serving
from models.model_calls import context, decoded
from models.openai.openai_adapter import entered
from msgspec import Raw

pytestmark = pytest.mark.anyio
USER = {"role": "user", "content": "Two and two are"}
LOGPROBS = {
    "tokens": ["Two", " are", " four"],
    "token_logprobs": [None, -1.5, -0.25],
    "top_logprobs": [None, {" is": -0.5}, {" four": -0.25, " 4": -2.0}],
}
ANSWERS: dict[str, tuple[int, dict[str, Any]]] = {
    "base": (200, {"choices": [{"text": " four", "finish_reason": "stop"}], "usage": {"prompt_tokens": 4}}),
    "cut": (200, {"choices": [{"text": " fo", "finish_reason": "length"}]}),
    "echo": (200, {"choices": [{"text": "Two are four", "finish_reason": "stop", "logprobs": LOGPROBS}]}),
    "foreign": (200, {"status": "fine"}),
    "long": (
        400,
        {"error": {"message": "maximum context length is 9 tokens", "code": "context_length_exceeded"}},
    ),
    "broken": (503, {"error": {"message": "overloaded"}}),
}


class Server(ThreadingHTTPServer):
    asked: dict[str, Any]


class Handler(JsonHandler):
    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": name} for name in ANSWERS]})

    def do_POST(self) -> None:
        body = self.asked()
        assert isinstance(self.server, Server)
        self.server.asked = {"path": self.path, **body}
        status, document = ANSWERS[body["model"]]
        self.answer(document, status)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    with serving(made):
        yield made


def call(*items: dict[str, Any], return_tokens: bool = False, **params: Any) -> ModelCall:
    encoded = [Raw(msgspec.json.encode(item)) for item in items or (USER,)]
    return ModelCall(params=Raw(msgspec.json.encode(params)), input=encoded, return_tokens=return_tokens)


async def answer(server: Server, model: str, asked: ModelCall) -> Any:
    url = f"http://127.0.0.1:{server.server_port}/v1"
    async with entered(url, name=model, api="completions") as adapter:
        return decoded(await adapter.respond(asked, context()))


async def test_a_base_model_goes_on_from_the_rows_text(server: Server) -> None:
    system = {"role": "system", "content": "Sums."}
    extra = json.dumps({"stop": ["\n"], "seed": 7})
    asked = call(system, USER, max_output_tokens=5, temperature=0.5, metadata={"extra_body": extra})
    response = await answer(server, "base", asked)
    assert server.asked == {
        "path": "/v1/completions",
        "model": "base",
        "prompt": "Sums.\n\nTwo and two are",
        "max_tokens": 5,
        "temperature": 0.5,
        "stop": ["\n"],
        "seed": 7,
    }
    assert response.status == "completed"
    assert json.loads(bytes(response.output[0]))["content"][0]["text"] == " four"
    assert response.usage.input_tokens == 4
    assert (await answer(server, "cut", call())).incomplete_details.reason == "max_output_tokens"


async def test_the_prompts_own_log_probabilities_can_be_had(server: Server) -> None:
    extra = json.dumps({"echo": True, "max_tokens": 0})
    response = await answer(server, "echo", call(top_logprobs=2, metadata={"extra_body": extra}))
    assert (server.asked["echo"], server.asked["max_tokens"], server.asked["logprobs"]) == (True, 0, 2)
    first, second, third = json.loads(bytes(response.output[0]))["content"][0]["logprobs"]
    assert (first["token"], first["logprob"], first["top_logprobs"]) == ("Two", None, [])
    assert (second["logprob"], second["top_logprobs"][0]["token"]) == (-1.5, " is")
    assert third["bytes"] == list(b" four")


async def test_what_the_engine_says_instead_of_a_completion(server: Server) -> None:
    with pytest.raises(ModelUnavailable, match="no completion"):
        await answer(server, "foreign", call())
    with pytest.raises(ModelUnavailable, match="overloaded"):
        await answer(server, "broken", call())
    assert (await answer(server, "long", call())).status == "incomplete"


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        (call(USER, {"role": "assistant", "content": "5"}, USER), TaskError, "one user's message"),
        (call({"role": "system", "content": "x"}), TaskError, "not from system"),
        (
            call({"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}),
            TaskError,
            "text",
        ),
        (call(tools=[{"type": "function", "name": "f", "parameters": {}}]), TaskError, "no tools"),
        (call(return_tokens=True), ModelRefused, "exact tokens"),
    ],
)
def test_what_a_completion_cannot_carry(asked: ModelCall, error: type[GymError], says: str) -> None:
    with pytest.raises(error, match=says):
        completions.write_request(asked, "m", b"{}")


def chat(asked: ModelCall) -> list[dict[str, Any]]:
    return json.loads(b"[" + b"".join(write_messages(asked.input, None, "drop")) + b"]")


def test_videos_are_carried() -> None:
    part = {"type": "input_video", "video_url": "data:video/mp4;base64,AA"}
    [message] = chat(call({"role": "user", "content": [part, {"type": "input_text", "text": "What?"}]}))
    assert message["content"][0] == {"type": "video_url", "video_url": {"url": part["video_url"]}}


def test_a_sound_in_the_metadata_follows_the_users_text() -> None:
    turns = [{"role": "system", "content": "x"}, USER, {"role": "assistant", "content": "y"}, USER]
    made = side_channel.with_audio(call(*turns, metadata={"audio_url": "data:audio/wav;base64,AA", "a": "b"}))
    assert json.loads(bytes(made.params)) == {"metadata": {"a": "b"}}
    [_, first, *_, last] = chat(made)
    assert first["content"] == [
        {"type": "text", "text": USER["content"]},
        {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AA"}},
    ]
    assert last["content"] == USER["content"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (call(metadata={"audio_path": "/etc/passwd"}), "audio_path is not sent"),
        (
            call({"role": "system", "content": "x"}, metadata={"audio_url": "data:,"}),
            "no message of the user",
        ),
        (call(metadata={"audio_url": 1}), "metadata"),
    ],
)
def test_sounds_that_are_not_sent(asked: ModelCall, says: str) -> None:
    with pytest.raises(TaskError, match=says):
        side_channel.with_audio(asked)


def test_pinned_sampling_wins_over_the_rows() -> None:
    metadata = {"extra_body": json.dumps({"temperature": 2, "top_k": 3, "min_p": 0.1})}
    params = msgspec.json.encode({"temperature": 1.0, "top_p": 0.5, "metadata": metadata})
    made = json.loads(bytes(pinned(params, b'{"temperature": 0.0, "top_k": 9}')))
    assert (made["temperature"], made["top_p"]) == (0.0, 0.5)
    assert json.loads(made["metadata"]["extra_body"]) == {"min_p": 0.1, "top_k": 9}


async def test_a_model_worker_pins_its_sampling(server: Server) -> None:
    url = f"http://127.0.0.1:{server.server_port}/v1"
    options = {"sampling": {"temperature": 0.0, "max_output_tokens": 9}}
    async with entered(url, name="base", api="completions", options=options) as adapter:
        await adapter.respond(call(temperature=1.0, max_output_tokens=500), context())
    assert (server.asked["temperature"], server.asked["max_tokens"]) == (0.0, 9)
