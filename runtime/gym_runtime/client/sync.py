"""A client for synchronous code: trainers, workers of a DataLoader, plain scripts.

Its event loop runs in a thread of its own, so it also works inside of another event loop, and from several
threads at once. A process that was forked with it, or to which it was sent by pickle, connects again at the
first use: the thread and the connection belong to the process that made them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from gym_runtime.client.client import Client
from gym_runtime.client.connecting import connect
from gym_runtime.client.loop_thread import LoopThread
from gym_runtime.client.sync_calls import SyncRun, SyncSession
from gym_runtime.client.sync_connection import SharedConnection
from gym_runtime.client.sync_methods import answered, held, looped, with_parameters_of

P = ParamSpec("P")


def _nothing(_: LoopThread, value: None) -> None:
    return value


class SyncClient(SharedConnection):
    """`Client` with methods that block. Made by `connect_sync`; open until `close`, or until ``with`` ends.

    Methods may be called by several threads. Rows that are no list are read in the client's own thread.
    """

    rollouts = looped(Client.rollouts)
    groups = looped(Client.groups)
    publish = answered(Client.publish)
    collect = looped(Client.collect)
    standing_run = held(Client.standing_run, SyncRun)
    session = held(Client.session, SyncSession)
    verify = answered(Client.verify)
    control = answered(Client.control)
    update_weights = answered(Client.update_weights)
    weights_paused = held(Client.weights_paused, _nothing)
    workers = answered(Client.workers)
    status = answered(Client.status)


def _opened(connect: Callable[P, Client]) -> Callable[P, SyncClient]:
    def connect_sync(*arguments: P.args, **keywords: P.kwargs) -> SyncClient:
        """A client for synchronous code, connected when this returns; the arguments are those of `connect`.

        Raises:
            UsageError, BrokerError: the message says what is missing.
        """
        return SyncClient(connect(*arguments, **keywords))

    with_parameters_of(connect, connect_sync, "SyncClient")
    return connect_sync


connect_sync = _opened(connect)
