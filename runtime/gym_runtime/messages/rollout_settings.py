"""What a run asks for of its rollouts: one object from the flags and the Python client to the wire.

Each option of `RolloutSettings` is declared here once, with its default, its bounds and its help text. The
command line makes its flags from these fields, `Client.rollouts` takes them as one object or as keywords
(`RolloutKeywords`, written by ``python .ci/reference``), and each `RolloutSpec` carries those that a worker
needs.

`Sampling` has the parameters that a run may set, and `lay_over` replaces those of a row. The Responses API
has fields for some of them. The rest are sent as NeMo Gym sends them: as JSON text in
``responses_create_params.metadata``, under ``extra_body`` and ``chat_template_kwargs``, from where a model
adapter puts them into the body of its request. A row may also hold them as an object,
``responses_create_params.extra_body``, which `fold` turns into that text.

Three rules hold. A run's setting replaces the row's, wherever the row has it and under any of its names.
`refused` names what an ``extra_body`` must not hold: the model, the number of answers, streaming, credentials
and addresses. An adapter refuses by name a parameter that its engine does not have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, wraps
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Raw

from gym_runtime.errors import NOT_JSON, UsageError

BEYOND_RESPONSES = (
    *("top_k", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("logit_bias", "chat_template_kwargs"),
)
"""Parameters that the Responses API does not have."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What a run sets for all of its rollouts; None leaves it to the row, and then to the engine.

    Attributes:
        temperature: at least 0; 0 takes the most probable token.
        top_p: sample from the smallest set of tokens whose probabilities add up to this; above 0, at most 1.
        top_k: sample from this many of the most probable tokens; 0 or -1 for all.
        min_p: leave out tokens less probable than this share of the most probable one's; 0 to 1.
        max_output_tokens: of one model call, at least 1.
        seed: of the engine's random numbers.
        stop: texts at which an answer ends.
        presence_penalty: on tokens that occurred; -2 to 2.
        frequency_penalty: on tokens, for each time that they occurred; -2 to 2.
        repetition_penalty: divides the logits of tokens that occurred; above 0, 1 for none.
        logit_bias: added to tokens' logits, -100 to 100, keyed by the token's id as text.
        reasoning_effort: how much the model should think; replaces ``effort`` in a row's ``reasoning``.
        chat_template_kwargs: arguments of the chat template; replace a row's arguments of the same names.
        system_prompt: the ``instructions``; system messages in a row's input come after them.
        extra_body: an engine's own parameters; replace a row's parameters of the same names.
    """

    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    reasoning_effort: Effort | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    system_prompt: str | None = None
    extra_body: dict[str, Any] | None = None

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> Sampling:
        """Sampling settings from JSON values, with types and bounds checked, also within ``extra_body``.

        Raises:
            UsageError: the message names the setting.
        """
        sampling = _converted(settings)
        extra = sampling.extra_body or {}
        if problem := refused(extra):
            raise UsageError(f"sampling setting 'extra_body': {problem}")
        _converted({name: extra[name] for name in BEYOND_RESPONSES if name in extra})
        return sampling

    def overrides(self) -> dict[str, Any]:
        """The fields to lay over ``responses_create_params`` (`lay_over`): only those that were set.

        Names are those of the Responses API; parameters that it does not have are in the object
        ``extra_body``.
        """
        set_here = {name: value for name, value in vars(self).items() if value is not None}
        extra = {**set_here.pop("extra_body", {})}
        extra.update((name, set_here.pop(name)) for name in BEYOND_RESPONSES if name in set_here)
        if "system_prompt" in set_here:
            set_here["instructions"] = set_here.pop("system_prompt")
        if "reasoning_effort" in set_here:
            set_here["reasoning"] = {"effort": set_here.pop("reasoning_effort")}
        return {**set_here, "extra_body": extra} if extra else set_here


_KWARGS = "chat_template_kwargs"
# Other names of the same parameter, as engines have them.
_SAME = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "max_new_tokens": "max_output_tokens",
    "n_predict": "max_output_tokens",
    "reasoning_effort": "reasoning",
    "repeat_penalty": "repetition_penalty",
    "stop_sequences": "stop",
    "system_prompt": "instructions",
}
_NEVER = frozenset(
    {
        *("model", "models", "n", "best_of", "stream", "stream_options", "background"),
        *("input", "messages", "prompt", "fallbacks", "custom_llm_provider"),
        *("return_token_ids", "return_tokens_as_token_ids"),
        "kv_transfer_params",  # vLLM: names the host that an engine fetches its cache from
    }
)
_ADDRESS_OR_LOGIN = re.compile(
    r"api_?(?:key|base|version)|(?:^|_)(?:ur[il]|headers?|host|proxy)$|authorization|credential|password|secret",
    re.IGNORECASE,
)
_encode = msgspec.json.Encoder().encode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_metadata = msgspec.json.Decoder(dict[str, str] | None).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_optional = msgspec.json.Decoder[dict[str, Any] | None](dict[str, Any] | None).decode


def refused(extra_body: Iterable[str]) -> str:
    """Why an ``extra_body`` with these names is refused; empty if it is not."""
    for name in extra_body:
        if name in _NEVER:
            return f"'{name}' cannot be set in extra_body: the run and the model's settings decide it"
        if _ADDRESS_OR_LOGIN.search(name):
            return f"'{name}' looks like an address or a credential; set those in the model's settings"
    return ""


def lay_over(params: Mapping[str, Raw], sampling: Mapping[str, Any]) -> dict[str, Any]:
    """A row's ``responses_create_params`` with ``sampling`` (as `Sampling.overrides` gives it) on top.

    A parameter that ``sampling`` sets is removed from the row's ``extra_body``, under all of its names.
    ``reasoning`` and ``chat_template_kwargs`` are merged field by field. If ``sampling`` has ``metadata``, it
    replaces the row's.

    Raises:
        msgspec.DecodeError: the row's ``metadata`` does not hold JSON objects as text where it should.
    """
    over = {**sampling}
    own_metadata = over.pop("metadata", None)
    metadata = {**(_metadata(params) if own_metadata is None else own_metadata)}
    extra = _decode_object(metadata.pop("extra_body", "{}"))
    more = _fields(over.pop("extra_body", None))
    kwargs = {
        **_fields(extra.pop(_KWARGS, None)),
        **_decode_object(metadata.pop(_KWARGS, "{}")),
        **_fields(more.pop(_KWARGS, None)),
    }
    names = {_SAME.get(name, name) for name in (*over, *more)}
    extra = {name: value for name, value in extra.items() if _SAME.get(name, name) not in names}
    if over.get("reasoning") is not None:
        own_reasoning: dict[str, Any] = _decode_optional(params.get("reasoning", b"null")) or {}
        over["reasoning"] = {**own_reasoning, **_fields(over["reasoning"])}
    if extra or more:
        metadata["extra_body"] = _encode({**extra, **more}).decode()
    if kwargs:
        metadata[_KWARGS] = _encode(kwargs).decode()
    beneath = {
        name: value
        for name, value in params.items()
        if name != "metadata" and (name in over or _SAME.get(name, name) not in names)
    }
    result: dict[str, Any] = {**beneath, **over}
    if metadata:
        result["metadata"] = metadata
    elif own_metadata is None and "metadata" in params and not _metadata(params):
        result["metadata"] = params["metadata"]  # null, as NeMo Gym writes it
    return result


def seed_of(params: Mapping[str, Raw]) -> int:
    """The seed that a row's ``responses_create_params`` ask the engine for; 0 without one.

    Raises:
        msgspec.DecodeError: as `lay_over`.
    """
    seed = _decode_object(_metadata(params).get("extra_body", "{}")).get("seed")
    return seed if isinstance(seed, int) else 0


def fold(params: Mapping[str, Raw]) -> dict[str, Any]:
    """A row's ``responses_create_params`` whose ``extra_body`` object, if there is one, is in ``metadata``.

    Raises:
        msgspec.DecodeError: ``extra_body`` is not an object, or ``metadata`` holds something else than text.
    """
    beneath = {**params}
    extra_body = beneath.pop("extra_body", Raw(b"null"))
    if bytes(extra_body) == b"null":
        return beneath
    return lay_over(beneath, {"extra_body": _decode_object(extra_body)})


def _converted(settings: Mapping[str, Any]) -> Sampling:
    known = {one.name for one in fields(Sampling)}
    for name, value in settings.items():
        if name not in known:
            raise UsageError(f"sampling setting '{name}': there is no such setting")
        if isinstance(value, float) and not math.isfinite(value):  # JSON would encode it as null
            raise UsageError(f"sampling setting '{name}': expected a finite number, got {value}")
    for token in settings.get("logit_bias") or ():
        if not str(token).isdecimal():
            raise UsageError(f"sampling setting 'logit_bias': '{token}' is not a token's id")
    try:
        return msgspec.json.decode(_encode(dict(settings)), type=Sampling)  # check what is sent
    except msgspec.ValidationError as error:
        what, _, path = str(error).replace(" | null", "").replace("`", "").rpartition("$.")
        what = what.removesuffix(" - at ").removesuffix(" - at key in ")
        if what.startswith("Invalid enum"):
            what += f"; there are: {', '.join(get_args(Effort))}"
        raise UsageError(f"sampling setting '{path}': {what[:1].lower()}{what[1:]}") from error
    except NOT_JSON as error:
        raise UsageError(f"sampling settings are JSON values: {error}") from error


def _metadata(params: Mapping[str, Raw]) -> dict[str, str]:
    return _decode_metadata(params["metadata"]) or {} if "metadata" in params else {}


def _fields(value: Any) -> dict[str, Any]:
    """A copy of an object; null has no fields."""
    return msgspec.convert(value, dict[str, Any] | None) or {}


AtLeastOne = Annotated[int, Meta(ge=1)]
MOST_REPEATS = 1_000_000
Repeats = Annotated[int, Meta(ge=1, le=MOST_REPEATS)]
Durability = Literal["turn", "result"]
OTHER_NAMES = {
    "timeout": "timeout_s",
    "call_timeout": "call_timeout_s",
    "return_tokens": "return_token_ids",
}
"""Flags of the command line whose settings name the unit, too; and a former name."""


@dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """How rollouts are run.

    Attributes:
        agent: The agent that runs the rollouts; by default the environment's.
        agent_options: Options of that agent, such as ``{"max_time_s": 600}``, over those of the environment.
        model_pool: The name under which workers serve the policy's model.
        roles: The name under which workers serve the model of each role, such as ``{"judge": "judge"}``; by
            default the role's name. A role that is optional for the environment is asked only if it is named
            here.
        role_sampling: How models in roles sample, such as ``{"judge": {"temperature": 0}}``: fields of
            ``responses_create_params``, which replace the environment's settings.
        repeats: Rollouts per row, one number, or one for some of the environments by their names; by default
            1, or as many as a benchmark's authors use.
        seed_repeats: Give each repeat of a row a different seed, from the seed that is given, or 0, on (NeMo
            Gym's num_repeats_add_seed).
        max_turns: Model calls per attempt; by default the environment's.
        timeout_s: Seconds that all attempts of a rollout together may take; by default the environment's.
        call_timeout_s: Seconds that one call of an engine may take; a longer call is aborted as hanging and
            repeated. 0 for no limit; by default a generous limit, learned from the engine's answers.
        max_attempts: How many attempts at a rollout may fail before it counts as failed.
        durability: turn: another worker continues a rollout at the turn where its worker died. result: such
            a rollout starts again.
        return_token_ids: Put token ids and log-probabilities on the rows, for training.
        max_staleness: Re-run rollouts whose weights are more than N versions old.
        skip_verification: Do not judge the rollouts, and write this reward; 'gym-runtime reverify' judges
            them later. Roles that only judge need no model.
        share: The run's weight among the runs of a system; agent workers divide their slots by it. Runs
            without one have the weight 1 together.
        priority: No rollout of a run of lower priority starts where one of this run waits; by default 0.
        sampling: Fields that replace those of each row's ``responses_create_params``.

    Raises:
        UsageError: a value is out of its bounds or of a wrong type; the message names it.
    """

    agent: str | None = None
    agent_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model_pool: str = "policy"
    roles: Mapping[str, str] = field(default_factory=dict[str, str])
    role_sampling: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    repeats: Repeats | Mapping[str, Repeats] | None = None
    seed_repeats: bool = False
    max_turns: AtLeastOne | None = None
    timeout_s: Annotated[float, Meta(gt=0)] | None = None
    call_timeout_s: Annotated[float, Meta(ge=0)] | None = None
    max_attempts: AtLeastOne = 3
    durability: Durability = "turn"
    return_token_ids: bool = False
    max_staleness: Annotated[int, Meta(ge=0)] | None = None
    skip_verification: float | None = None
    share: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    priority: Annotated[int, Meta(ge=-1000, le=1000)] | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        for name, kind in _types().items():
            value = getattr(self, name)
            try:
                msgspec.convert(value, kind)
            except msgspec.ValidationError as error:
                raise UsageError(f"{name} is {value!r}; it must be {_expected(str(error), kind)}") from None
            except AttributeError:  # of msgspec, for a number of numpy where a mapping may stand
                raise UsageError(f"{name} is {value!r}; give it as a plain number: int({name})") from None
        if self.skip_verification is not None and not math.isfinite(self.skip_verification):
            raise UsageError(f"skip_verification is {self.skip_verification}; it must be a finite number")

    def repeats_of(self, environment: str, own: int) -> int:
        """Rollouts per row of an environment, whose own number is ``own``."""
        given = self.repeats
        if given is None or isinstance(given, int):
            return given or own
        return given.get(environment, own)

    def with_keywords(self, keywords: Mapping[str, Any]) -> RolloutSettings:
        """These settings with some changed; keywords that are not settings are added to ``sampling``.

        Raises:
            UsageError: a value is out of its bounds, or a setting has two values under two names.
        """
        known = {one.name for one in fields(self)}
        named = _by_own_names(keywords)
        changes = {name: value for name, value in named.items() if name in known}
        sampling = {name: value for name, value in named.items() if name not in known}
        if sampling:
            changes["sampling"] = {**self.sampling, **changes.get("sampling", {}), **sampling}
        return replace(self, **changes) if changes else self


def _by_own_names(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords, with `OTHER_NAMES` replaced.

    Raises:
        UsageError: a setting is given under two names.
    """
    for other, own in OTHER_NAMES.items():
        if other in keywords and own in keywords:
            raise UsageError(f"{other} and {own} are the same setting: give one of them")
    return {OTHER_NAMES.get(name, name): value for name, value in keywords.items()}


_made = RolloutSettings.__init__


@wraps(_made)
def _make(self: RolloutSettings, **keywords: Any) -> None:
    _made(self, **_by_own_names(keywords))


# A dataclass knows no second name of a field.
RolloutSettings.__init__ = _make


@cache
def _types() -> dict[str, Any]:
    """The fields' types with their bounds; the sampling is checked further where it is laid over rows."""
    hints = get_type_hints(RolloutSettings, include_extras=True)
    return {**hints, "sampling": dict}


def _expected(message: str, kind: Any) -> str:
    """msgspec's error on a value of this type, put as what was expected.

    >>> _expected("Expected `int` >= 1", int), _expected("Expected `float` > 0.0", float)
    ('at least 1', 'more than 0.0')
    >>> _expected("Expected `int | null`, got `str`", int)
    'a whole number or None'
    >>> _expected("Invalid enum value 'x'", Durability)
    'one of turn, result'
    """
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    bound = re.match(r"Expected `\w+` (>=|>|<=|<) (\S+)", message)
    if bound:
        words = {">=": "at least", ">": "more than", "<=": "at most", "<": "less than"}
        return f"{words[bound[1]]} {bound[2]}"
    return in_words(message).removeprefix("Expected ").partition(", got")[0]


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "True or False",
    "str": "text",
    "object": "a mapping",
    "array": "a list",
    "null": "None",
}


def in_words(message: str) -> str:
    """msgspec's error with the types that it names in plain words.

    >>> in_words("Expected `float | null`, got `str` - at `$.top_p`")
    'Expected a number or None, got text - at $.top_p'
    """

    def words(found: re.Match[str]) -> str:
        return " or ".join(_WORDS.get(kind, kind) for kind in found[1].split(" | "))

    return re.sub("`(.*?)`", words, message)
