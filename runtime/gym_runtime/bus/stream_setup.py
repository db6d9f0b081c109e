"""The five streams are created where they are missing; what is essential of existing ones is corrected."""

from __future__ import annotations

from typing import Any, TypeVar

import anyio
import msgspec
import structlog

from gym_runtime.bus.jetstream import (
    ESSENTIALS,
    JETSTREAM_OFF,
    NO_JETSTREAM,
    NO_PEERS,
    NOT_CLUSTERED,
    STREAM_NAME_IN_USE,
    STREAM_STORE_FAILED,
    AccountInfo,
    StreamInfo,
    definition,
)
from gym_runtime.bus.link import Link
from gym_runtime.bus.subjects import Names
from gym_runtime.errors import BrokerError, ConnectionLost, DeadlineExceeded, NoWorker
from gym_runtime.timing import API_ANSWER_S, PAUSES_S

log = structlog.get_logger(__name__)

T = TypeVar("T")


class StreamSetup:
    """The streams of one system at one broker.

    Args:
        replicas: how often each stream is kept; by default three times in a cluster.
    """

    def __init__(self, link: Link, names: Names, replicas: int | None) -> None:
        self._link = link
        self._names = names
        self._replicas = replicas
        self._missing = ""

    async def open(self, *, create: bool = True, needed: bool = False) -> None:
        """Create the streams that are missing. Without ``create`` only if no system has its streams there.

        Args:
            needed: those that are missing and may not be created are an error, which is ``silent``: a client
                may create them later.

        Raises:
            BrokerError: The broker has no JetStream, or refuses a stream that is to be created.
        """
        if create:
            for kind in ESSENTIALS:
                await self._ensure(kind)
            return
        account = await self._once("INFO", None, AccountInfo)
        if account.error is not None:
            raise BrokerError(f"{NO_JETSTREAM} ({account.error.description})")
        # Roles other than a client may not read streams, but may ask for the account, which counts those of
        # all systems.
        if account.streams < len(ESSENTIALS) and not await self.restored(quiet=needed) and needed:
            raise BrokerError(
                "the broker has no streams for this system yet, and these credentials may not create them: "
                "run 'gym-runtime status' with a client's",
                silent=True,
            )

    async def _ensure(self, kind: str) -> None:
        replicas = self._replicas or (3 if self._link.clustered else 1)
        wanted = definition(self._names, kind, replicas)
        name = wanted["name"]
        info = await self._created(name, wanted)
        # Only our default is lowered, never a number that the operator gave.
        if info.error is not None and info.error.err_code in NO_PEERS and self._replicas is None:
            if info.error.err_code != NOT_CLUSTERED:  # a single broker with sites has a cluster's name, too
                log.warning("a stream is stored once only", stream=name, reason=info.error.description)
            wanted = definition(self._names, kind, 1)
            info = await self._created(name, wanted)
        if info.error is None:
            return
        if info.error.err_code in JETSTREAM_OFF:
            raise BrokerError(f"{NO_JETSTREAM} ({info.error.description})")
        if info.error.err_code != STREAM_NAME_IN_USE:
            raise BrokerError(f"the broker refuses the stream {name}: {info.error.description}")
        present = await self._once(f"STREAM.INFO.{name}", None, StreamInfo)
        # The broker leaves out of its answer what is switched off.
        wrong = {
            key: value for key, value in ESSENTIALS[kind].items() if present.config.get(key, False) != value
        }
        if not wrong:
            return
        present = await self._once(f"STREAM.UPDATE.{name}", present.config | wrong, StreamInfo)
        if present.error is not None:
            raise BrokerError(
                f"the stream {name} exists with other settings and cannot be changed to {wrong} "
                f"({present.error.description}): delete it, or use another prefix"
            )

    async def _created(self, name: str, wanted: dict[str, Any]) -> StreamInfo:
        info = await self._once(f"STREAM.CREATE.{name}", wanted, StreamInfo)
        for pause_s in PAUSES_S:
            if info.error is None or info.error.err_code != STREAM_STORE_FAILED:
                break
            # A stream deleted a moment ago still occupies its directory.
            await anyio.sleep(pause_s)
            info = await self._once(f"STREAM.CREATE.{name}", wanted, StreamInfo)
        return info

    async def _once(self, verb: str, body: dict[str, Any] | None, kind: type[T]) -> T:
        payload = b"" if body is None else msgspec.json.encode(body)
        try:
            answer = await self._link.ask(f"$JS.API.{verb}", payload, within_s=API_ANSWER_S)
        # Without JetStream there is no process that listens on its subjects.
        except NoWorker as error:
            raise BrokerError(
                "the broker has no JetStream: if it is the leaf of another site, the broker there cannot be "
                "reached now (its log says why; 'start --wait' waits); else start it with 'nats-server -js', "
                f"or enable JetStream for this account ({error})",
                silent=True,
            ) from error
        except DeadlineExceeded as error:
            raise BrokerError(
                f"the broker's JetStream does not answer ({error}): see its log; a cluster may have no "
                "leader",
                silent=True,
            ) from error
        except BrokerError as error:
            raise BrokerError(
                f"{error}: streams that are missing are created by 'gym-runtime status' with a client's "
                "credentials"
            ) from error
        return msgspec.json.decode(answer.payload, type=kind)

    async def restored(self, *, quiet: bool = False) -> bool:
        """Create the streams that are missing; says whether they are there.

        Why they are not is logged once, unless ``quiet``: this is tried again and again.
        """
        # We are the first here, or a broker that lost its state directory has lost the streams as well.
        try:
            await self.open()
        except (BrokerError, ConnectionLost) as error:
            if not quiet and str(error) != self._missing:
                self._missing = str(error)
                log.warning("streams not created", error=str(error))
            return False
        self._missing = ""
        return True
