"""A vLLM that has no model: its token endpoints and its weight updates, for tests without one.

It answers a conversation whose last item is a user's message with a call of the first tool (thinking
first, if ``think`` is set), and every other with ``Done.``. The point is its tokens: a rendered text is one
token a word, while what the "model" writes is one token a character. So a text rendered again never has the
tokens that it was written with, and a prompt that holds them was not rendered.

``chat_template_kwargs`` rewrite the past as some models' templates do: ``drop_thinking`` shows no thinking
before the last user message, ``forget_calls`` writes no tool call out once its result is there. Source of
paths and fields: vLLM 0.32, with its oddities: a chat request calls earlier thinking ``reasoning_content`` or
``reasoning``, ``/tokenize`` takes the second name only.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any, Literal

import numpy as np
from aiohttp import web
from numpy.typing import NDArray
from stubs.stub_vocabulary import END, Vocabulary

DEFAULT_MAX_TOKENS = 16
SCALE_OUT = "/v1/chat/completions/render", "/inference/v1/generate", "/v1/chat/completions/derender"
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def routed(ids: list[int], *, layers: int = 3, top_k: int = 2, wide: bool = False) -> NDArray[Any]:
    """The experts of all tokens but the last, told by each token and its place."""
    first = np.array(ids[:-1]) * 31 + np.arange(len(ids) - 1)
    experts = first[:, None, None] + np.arange(layers * top_k).reshape(layers, top_k)
    return (experts % (300 if wide else 200)).astype("<u2" if wide else "u1")


class StubVllm:
    """One server. ``scale_out`` and ``dev`` are the switches that a real one has; times in seconds.

    Args:
        cpu: it runs on a CPU, with tied embeddings or without, and with the extension that packs their output
            layer or without.
        experts: each completion comes with its routed experts, by `routed`.
        log_probs: ``raw`` ones are those before the temperature, as is vLLM's default.
        token_prompts: what becomes of a prompt's tokens in a chat request: 0.32 takes them, before they were
            ignored. ``prefix``: NeMo RL's server, which takes the first part of a prompt in a field of its
            own, wants a ``top_p``, lists no models, and names tokens instead of reporting a prompt;
            ``reported``: the same, with its prompt reported.
        tokenize: whether ``/tokenize`` renders what a chat request does; not so with gpt-oss, and a router
            may have no such path.

    Attributes:
        url: its base URL, while it runs.
        asked: the paths of all requests, in order.
        generated: prompts and completions.
        aborted: generations whose client left.
        started: a generation has begun.
        left: a client has left.
        weights: the folder of its weights.
        output_layer: that of its output layer's; a reload of tied embeddings on a CPU keeps the old one.
        commands: what was done to its weights.
        says: what its model writes; by default as above.
        spoiled: fields in place of those of each completion.
    """

    def __init__(
        self,
        *,
        scale_out: bool = True,
        token_prompts: Literal["taken", "ignored", "refused", "prefix", "reported"] = "taken",
        tokenize: Literal["alike", "otherwise", "absent"] = "alike",
        dev: bool = True,
        think: bool = False,
        token_s: float = 0.0,
        experts: bool = False,
        cpu: Literal["", "untied", "tied", "tied and packs"] = "",
        log_probs: Literal["raw", "processed"] = "raw",
    ) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.generated: list[tuple[list[int], list[int]]] = []
        self.aborted = 0
        self.commands: list[str] = []
        self.version, self.says = "default", ""
        self.spoiled: dict[str, Any] = {}
        self.started = asyncio.Event()
        self.left = asyncio.Event()
        self._go_on = asyncio.Event()
        self._go_on.set()
        self._scale_out, self._dev, self._think, self._token_s = scale_out, dev, think, token_s
        self._experts, self._cpu, self._log_probs = experts, cpu, log_probs
        self.weights = self.output_layer = "/weights/0"
        self._token_prompts, self._tokenize_mode = token_prompts, tokenize
        self._vocabulary = Vocabulary()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[StubVllm]:
        """The server, on a free port of this machine."""
        app = web.Application(client_max_size=1 << 26, middlewares=[self._note])
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        if self._tokenize_mode != "absent":
            app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/detokenize", self._detokenize)
        for path, handler in zip(SCALE_OUT, (self._render, self._generate, self._derender), strict=True):
            app.router.add_post(path, handler if self._scale_out else self._disabled)
        if self._dev:
            app.router.add_get("/is_paused", self._is_paused)
            app.router.add_get("/weight_info", self._weight_info)
            for path in ("pause", "resume", "collective_rpc", "reset_prefix_cache", "update_weight_version"):
                app.router.add_post(f"/{path}", self._command)
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
            yield self
        finally:
            await runner.cleanup()

    # -- tokens ---------------------------------------------------------------------------------------

    def text(self, ids: list[int]) -> str:
        """What tokens say."""
        return self._vocabulary.text(ids)

    @property
    def _prefixed(self) -> bool:
        return self._token_prompts in ("prefix", "reported")

    def _from_prefix(self, body: dict[str, Any]) -> list[int]:
        """The rendered prompt, whose part up to the last turn is the required one, if there is one."""
        whole, prefix = self._vocabulary.rendered(body), body.get("required_prefix_token_ids")
        if not prefix or not self._prefixed:
            return whole
        messages = body["messages"]
        last = max(at for at, one in enumerate(messages) if one["role"] == "assistant")
        past = {**body, "messages": messages[: last + 1], "add_generation_prompt": False}
        return [*prefix, *self._vocabulary.tokens(["\n"]), *whole[len(self._vocabulary.rendered(past)) :]]

    def _written(self, body: dict[str, Any]) -> str:
        if self.says:
            return self.says
        asked = not body["messages"] or body["messages"][-1]["role"] == "user"
        tools: list[Any] = body.get("tools") or []
        call = {"name": tools[0]["function"]["name"], "arguments": "{}"} if tools and asked else None
        text = f"<tool_call>{json.dumps(call)}</tool_call>" if call else "Done."
        return f"<think>hm</think>{text}" if self._think else text

    async def _sampled(self, text: str, limit: int) -> tuple[list[int], str, list[dict[str, Any]]]:
        """Tokens, why they end, and the versions of the weights that they come from."""
        ids = self._vocabulary.tokens([*text, END])
        spans: list[dict[str, Any]] = []
        self.started.set()
        try:
            for at in range(min(limit, len(ids))):
                await self._go_on.wait()
                if not spans or spans[-1]["version"] != self.version:
                    spans.append({"version": self.version, "start": at, "end": at + 1})
                spans[-1]["end"] = at + 1
                await asyncio.sleep(self._token_s)
        except asyncio.CancelledError:
            self.aborted += 1
            self.left.set()
            raise
        return ids[:limit], "stop" if limit >= len(ids) else "length", spans

    # -- endpoints ------------------------------------------------------------------------------------

    @web.middleware
    async def _note(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self.asked.append(request.path)
        return await handler(request)

    async def _disabled(self, _: web.Request) -> web.Response:
        message = (
            "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."
        )
        error = {"message": message, "type": "PermissionDeniedError", "param": None, "code": 403}
        return web.json_response({"error": error}, status=403)

    async def _models(self, _: web.Request) -> web.Response:
        if self._prefixed:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.json_response({"data": [{"id": "stub"}]})

    async def _chat(self, request: web.Request) -> web.Response:
        body = _chat_request(await request.json())
        transfer: dict[str, Any] = body.get("kv_transfer_params") or {}
        sent = transfer.get("prompt_token_ids")
        if sent and self._token_prompts == "refused":
            return web.json_response({"error": {"message": "kv_transfer_params: no connector"}}, status=400)
        if self._prefixed and "top_p" not in body:
            return web.json_response({"error": {"message": "top_p must be given"}}, status=400)
        prompt: list[int] = sent if sent and self._token_prompts == "taken" else self._from_prefix(body)
        ids, finish, _ = await self._sampled(self._written(body), body.get("max_tokens") or 1000)
        self.generated.append((prompt, ids))
        message = self._parsed([one for one in ids if self.text([one]) != END])
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}
        choice: dict[str, Any] = {"message": message, "finish_reason": finish}
        answer: dict[str, Any] = {"choices": [choice], "usage": usage}
        if body.get("return_token_ids") and self._token_prompts != "prefix":
            choice["token_ids"] = ids
            answer["prompt_token_ids"] = prompt
        if body.get("logprobs"):
            named = body.get("return_tokens_as_token_ids")
            said = -0.5 * (body.get("temperature", 1.0) if self._log_probs == "processed" else 1.0)
            top = [{"logprob": said}] * body.get("top_logprobs", 0)
            choice["logprobs"] = {
                "content": [
                    {"token": f"token_id:{one}" if named else "", "logprob": said, "top_logprobs": top}
                    for one in ids
                ]
            }
        choice |= self.spoiled
        return web.json_response(answer)

    async def _render(self, request: web.Request) -> web.Response:
        body = _chat_request(await request.json())
        limit = body.get("max_tokens") or 1000
        params: dict[str, Any] = {"extra_args": {"text": self._written(body)}}
        if body.get("temperature", 1.0) != 1.0:
            params["temperature"] = body["temperature"]
        if limit != DEFAULT_MAX_TOKENS:  # left out, as a real one does
            params["max_tokens"] = limit
        answer = {"request_id": "r", "token_ids": self._vocabulary.rendered(body), "features": None}
        return web.json_response({**answer, "sampling_params": params})

    async def _generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        params = body["sampling_params"]
        text, limit = params["extra_args"]["text"], params.get("max_tokens", 1000)
        ids, finish, spans = await self._sampled(text, limit)
        self.generated.append((body["token_ids"], ids))
        choice = {
            "index": 0,
            "finish_reason": finish,
            "stop_reason": None,
            "token_ids": ids,
            "weight_versions": spans,
            "logprobs": {"content": [{"token_id": one, "logprob": -0.5} for one in ids]},
        }
        if self._experts:
            file = BytesIO()
            np.save(file, routed(body["token_ids"] + ids))
            choice["routed_experts"] = b64encode(file.getvalue()).decode()
        choice |= self.spoiled
        answer = {"request_id": "g", "choices": [choice], "prompt_token_ids": body["token_ids"]}
        return web.json_response(answer)

    async def _derender(self, request: web.Request) -> web.Response:
        body = await request.json()
        (choice,) = body["generate_response"]["choices"]
        usage = {"prompt_tokens": body["prompt_tokens"], "completion_tokens": len(choice["token_ids"])}
        message = self._parsed(choice["token_ids"])
        answer = {"choices": [{"message": message, "finish_reason": choice["finish_reason"]}], "usage": usage}
        return web.json_response(answer)

    def _parsed(self, ids: list[int]) -> dict[str, Any]:
        text = self.text(ids)
        calls = [
            {"id": f"call_{at}", "function": json.loads(found)}
            for at, found in enumerate(_CALL.findall(text))
        ]
        return {"content": _CALL.sub("", text), "tool_calls": calls}

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        ids = self._from_prefix(body)
        if self._tokenize_mode == "otherwise":
            ids = self._vocabulary.tokens(["<|start|>"]) + ids
        return web.json_response(
            {"count": len(ids), "max_model_len": 4096, "tokens": ids, "token_strs": None}
        )

    async def _detokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"prompt": self.text((await request.json())["tokens"])})

    async def _is_paused(self, _: web.Request) -> web.Response:
        return web.json_response({"is_paused": not self._go_on.is_set()})

    async def _weight_info(self, _: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.version})

    async def _command(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.commands.append(" ".join([request.path_qs, *filter(None, [body.get("method")])]))
        match request.path:
            case "/pause":
                self._go_on.clear()
            case "/resume":
                self._go_on.set()
            case "/update_weight_version":
                self.version = body["new_version"]
            case "/collective_rpc":
                return self._worker(body["method"], body.get("kwargs", {}).get("weights_path", ""))
            case _:
                pass
        return web.json_response({})

    def _worker(self, method: str, path: str) -> web.Response:
        """A call of a method of vLLM's workers."""
        results: list[Any] = [None]
        match method:
            case "reload_weights" if path == "/nowhere":
                return web.json_response({"error": {"message": "no such weights"}}, status=500)
            case "reload_weights":
                self.weights = path
                self.output_layer = self.output_layer if self._cpu.startswith("tied") else path
            case "get_model_inspection":
                results = [f"Attention(backend={'CPU' if self._cpu else 'Flash'}AttentionBackendImpl)"]
            case "compute_weight_checksums":
                own = {"lm_head.weight": "22"} if self._cpu == "untied" else {}
                results = [{"model.embed_tokens.weight": "11", **own}]
            case "pack_output_layer" if self._cpu == "tied and packs":
                self.output_layer = self.weights
            case _:
                message = f"'CPUWorker' object has no attribute '{method}'"
                return web.json_response({"error": {"message": message}}, status=500)
        return web.json_response({"results": results})


def _chat_request(body: dict[str, Any]) -> dict[str, Any]:
    """A chat request with earlier thinking by the name that templates see."""
    for message in body["messages"]:
        if thought := message.pop("reasoning_content", None):
            message.setdefault("reasoning", thought)
    return body
