"""A published task, as a row has it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from gym_resources.judging.asking import JudgedTask
from gym_resources.tau2 import published
from gym_resources.tau2.criteria import Criteria, SceneCall
from gym_resources.tau2.published import Domain
from gym_resources.tau2.shared_records import Record, Tables


class InitialState(msgspec.Struct, frozen=True):
    """What is not as it is in the database when a task begins."""

    initialization_actions: list[SceneCall] | None = None
    initialization_data: dict[str, Any] | None = None
    message_history: list[Any] | None = None


class Case(msgspec.Struct, frozen=True):
    """A published task.

    Attributes:
        user_scenario: who the customer is and what it wants.
        user_tools: those that the customer knows of, where the task says it.
    """

    evaluation_criteria: Criteria | None = None
    initial_state: InitialState | None = None
    user_scenario: dict[str, Any] | None = None
    user_tools: list[str] | None = None


AtLeastOne = Annotated[int, Meta(ge=1)]


class Limits(msgspec.Struct, frozen=True):
    """How a row limits what is found; the names are the authors'."""

    top_k: AtLeastOne = 10
    grep_top_k: AtLeastOne = 10
    case_sensitive: bool = False


class Config(msgspec.Struct, frozen=True):
    """What a published task belongs to.

    Attributes:
        retrieval_config: the bank's agent gets at the documents in this way, by the authors' name.
        retrieval_config_kwargs: limits of what it finds.
    """

    domain: Domain
    retrieval_config: str | None = None
    retrieval_config_kwargs: Limits | None = None


class ServiceTask(JudgedTask, kw_only=True):
    """A customer's case.

    Attributes:
        task: as it was published.
        config: names the ``domain``.
        simulated_user: who the customer is and what it wants, as the agent ``dialogue`` reads it.
        database: its tables, by their names; the published one if it is left out.
        use_judge: what is said of the conversation in ``nl_assertions`` counts, where the task says so.
        served: the domain whose tasks are taken.
        takes_data: its tasks may begin with other data than the database's.
    """

    served: ClassVar[Domain]
    takes_data: ClassVar[bool] = False

    task: Case
    config: Config
    simulated_user: dict[str, Any]
    database: dict[str, dict[str, Record]] | None = None
    use_judge: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.config.domain != self.served:
            raise ValueError(f"'config.domain' is {self.config.domain!r}, not {self.served!r}")
        if (self.initial.initialization_data and not self.takes_data) or self.initial.message_history:
            raise ValueError("'task.initial_state' has more than initialization_actions: not supported")

    @property
    def criteria(self) -> Criteria:
        return self.task.evaluation_criteria or Criteria(reward_basis=[])

    @property
    def initial(self) -> InitialState:
        return self.task.initial_state or InitialState()

    @property
    def judged(self) -> list[str]:
        """The statements about the conversation that a judge checks."""
        return self.criteria.judged if self.use_judge else []

    @property
    def signals(self) -> tuple[str, ...]:
        """What the customer says to end the conversation."""
        return tuple(self.simulated_user.get("stop", published.SIGNALS[:1]))

    def check_assets(self) -> None:
        self.tables()

    def tables(self) -> Tables:
        """The database; the published one is read once."""
        return published.tables(self.config.domain) if self.database is None else self.database
