"""What a run asks for of its rollouts: one object from the flags and the Python client to the wire.

Each option is declared here once, with its default, its bounds and its help text. The command line makes its
flags from these fields, `Client.rollouts` takes them as one object or as keywords, and each `RolloutSpec`
carries those that a worker needs, under the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from gym_runtime.errors import UsageError

AtLeastOne = Annotated[int, Meta(ge=1)]
Durability = Literal["turn", "result"]


@dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """How rollouts are made.

    Attributes:
        agent: The agent that runs the rollouts; by default the environment's.
        agent_options: Options of that agent, such as ``{"max_time_s": 600}``, over those of the environment.
        model_pool: The name under which workers serve the model that is asked.
        roles: Under which name workers serve the model of each role, such as ``{"judge": "judge"}``; by
            default the role's own name. A role that the environment can do without is asked only if it is
            named here.
        role_sampling: How models in roles sample, such as ``{"judge": {"temperature": 0}}``: fields of
            ``responses_create_params``, which replace what the environment says.
        repeats: Rollouts per row; by default 1, or as many as a benchmark's authors make.
        seed_repeats: Give each repeat of a row a seed of its own (NeMo Gym's num_repeats_add_seed).
        max_turns: Model calls per attempt; by default the environment's.
        timeout_s: Seconds that all attempts of a rollout together may take; by default the environment's.
        call_timeout_s: Seconds that one call of an engine may take; then it is aborted as hanging and asked
            again. 0 for no limit; by default a generous one, learned from the engine's own answers.
        max_attempts: Times that a rollout is tried before it counts as failed.
        durability: turn: another worker continues a rollout at the turn where its worker died. result: such
            a rollout starts again.
        return_tokens: Put token ids and log-probabilities on the rows, for training.
        max_staleness: Re-run rollouts whose weights are more than N versions old.
        sampling: Fields that replace those of each row's ``responses_create_params``.

    Raises:
        UsageError: a value is out of its bounds or of a wrong type; the message names it.
    """

    agent: str | None = None
    agent_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model_pool: str = "policy"
    roles: Mapping[str, str] = field(default_factory=dict[str, str])
    role_sampling: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    repeats: AtLeastOne | None = None
    seed_repeats: bool = False
    max_turns: AtLeastOne | None = None
    timeout_s: Annotated[float, Meta(gt=0)] | None = None
    call_timeout_s: Annotated[float, Meta(ge=0)] | None = None
    max_attempts: AtLeastOne = 3
    durability: Durability = "turn"
    return_tokens: bool = False
    max_staleness: Annotated[int, Meta(ge=0)] | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        for name, kind in _types().items():
            value = getattr(self, name)
            try:
                msgspec.convert(value, kind)
            except msgspec.ValidationError as error:
                raise UsageError(f"{name} is {value!r}; it must be {_expected(str(error))}") from None

    def with_keywords(self, keywords: Mapping[str, Any]) -> RolloutSettings:
        """These settings with some changed; keywords that are not settings are added to ``sampling``.

        Raises:
            UsageError: a value is out of its bounds.
        """
        known = {one.name for one in fields(self)}
        changes = {name: value for name, value in keywords.items() if name in known}
        sampling = {name: value for name, value in keywords.items() if name not in known}
        if sampling:
            changes["sampling"] = {**self.sampling, **changes.get("sampling", {}), **sampling}
        return replace(self, **changes) if changes else self


@cache
def _types() -> dict[str, Any]:
    """The fields' types with their bounds; the sampling is checked where it is laid over the rows."""
    hints = get_type_hints(RolloutSettings, include_extras=True)
    return {name: kind for name, kind in hints.items() if name != "sampling"}


def _expected(message: str) -> str:
    """msgspec's error, put as what was expected.

    >>> _expected("Expected `int` >= 1"), _expected("Expected `float` > 0.0")
    ('at least 1', 'more than 0.0')
    >>> _expected("Expected `int | null`, got `str`")
    'int | null'
    """
    kind, _, bound = message.removeprefix("Expected ").partition("` ")
    for sign, words in {
        ">= ": "at least ",
        "> ": "more than ",
        "<= ": "at most ",
        "< ": "less than ",
    }.items():
        if bound.startswith(sign):
            return words + bound.removeprefix(sign)
    return kind.partition(",")[0].strip("`")
