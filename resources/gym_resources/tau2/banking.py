"""Conversations with customers of the bank, whose rules and tools the agent finds in its documents."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
from anyio import to_thread
from gym_runtime import TaskError

from gym_resources.tau2 import banking_published
from gym_resources.tau2.banking_customer import Customer
from gym_resources.tau2.banking_desk import Desk
from gym_resources.tau2.banking_ledger import Ledger
from gym_resources.tau2.banking_library import DEFAULT, MODES, Corpus, Document, Library, checked
from gym_resources.tau2.criteria import SceneCall, Speaker
from gym_resources.tau2.shared_records import Record, Records, Tables
from gym_resources.tau2.task import Limits
from gym_resources.tau2.two_sided import TwoSided, TwoSidedTask, called, tools

SEARCHES = {name for names in MODES.values() for name in names}


class Changes(msgspec.Struct, frozen=True):
    """Records of a table that a task brings, by their keys; their fields are laid over what is there."""

    data: dict[str, Record] = {}


class InitialData(msgspec.Struct, frozen=True):
    """What a task changes in the database before it begins. Both sides share it."""

    agent_data: dict[str, Changes] | None = None
    user_data: dict[str, Changes] | None = None


class BankingTask(TwoSidedTask, kw_only=True):
    """A customer's case.

    Attributes:
        retrieval: the way to the documents; that of ``config`` if it is left out, else ``bm25_grep``.
        documents: the bank's library; the published one if it is left out.
    """

    served = "banking_knowledge"
    takes_data = True

    retrieval: str = ""
    documents: list[Document] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checked(self.way)
        self.initial_data()

    @property
    def way(self) -> str:
        return self.retrieval or self.config.retrieval_config or DEFAULT

    def check_assets(self) -> None:
        super().check_assets()
        self.library()

    def library(self) -> Library:
        """The documents, where the agent can search them.

        Raises:
            AssetMissing: they were not fetched.
        """
        limits = self.config.retrieval_config_kwargs or Limits()
        if not MODES[self.way]:
            return Library(Corpus([]), limits)
        corpus = banking_published.corpus() if self.documents is None else Corpus(self.documents)
        library = Library(corpus, limits)
        library.prepare(MODES[self.way])
        return library

    def tables(self) -> Tables:
        return banking_published.tables() if self.database is None else self.database

    def initial_data(self) -> InitialData:
        """What the task changes in the database.

        Raises:
            ValidationError: it has another form.
        """
        return msgspec.convert(self.initial.initialization_data or {}, InitialData)

    def records(self) -> Records:
        """The database with what the task changes in it beforehand."""
        records, data = Records(self.tables()), self.initial_data()
        for tables in (data.agent_data, data.user_data):
            for table, changes in (tables or {}).items():
                for key, fields in changes.data.items():
                    merged(records, table, key, fields)
        return records


class Bank:
    """Both sides, with the books that they share."""

    def __init__(self, task: BankingTask, library: Library) -> None:
        self.records = task.records()
        ledger = Ledger(self.records)
        expected = frozenset(
            str(action.arguments.get("agent_tool_name"))
            for action in task.criteria.actions or []
            if action.name == "call_discoverable_agent_tool"
        )
        self.desk, self.customer = Desk(ledger, library, expected), Customer(ledger)
        self.left_out = SEARCHES - set(MODES[task.way])
        self.users = task.task.user_tools

    def tools(self, speaker: Speaker) -> dict[str, Any]:
        return tools(Customer if speaker == "user" else Desk)

    def offered(self, speaker: Speaker) -> dict[str, Any]:
        found = self.tools(speaker)
        if speaker == "assistant":
            return {name: one for name, one in found.items() if name not in self.left_out}
        return {name: one for name, one in found.items() if self.users is None or name in self.users}

    async def call(self, speaker: Speaker, name: str, arguments: str) -> str:
        side, target = (Customer, self.customer) if speaker == "user" else (Desk, self.desk)
        return await called(side, target, name, arguments)

    async def run(self, call: SceneCall) -> str:
        raise TaskError(f"'{call.func_name}' of the task: the bank has no functions that set a task up")

    @property
    def state(self) -> dict[tuple[str, str], Record]:
        return self.records.changed()


class Banking(TwoSided[BankingTask]):
    company, means, subject = "bank", "what customers of the bank can do themselves", "what you have done"
    reason = "the agent asks for it, or if it is what you want"

    async def open(self) -> None:
        if self.task.criteria.env_assertions:
            raise TaskError("'env_assertions' mean nothing in banking_knowledge")
        self.library = await to_thread.run_sync(self.task.library)
        await super().open()

    async def new_world(self) -> Bank:
        return Bank(self.task, self.library)


def merged(records: Records, table: str, key: str, fields: Record) -> None:
    """Lay fields over a record, which may be new."""
    if records.find(table, key) is None:
        records.add(table, key, deepcopy(fields))
    else:
        records.change(table, key).update(fields)
