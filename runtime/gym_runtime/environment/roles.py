"""Models in roles: what an environment asks besides the policy, such as a judge.

An environment declares its roles, and a separate pool of model workers serves each. By a `Model` a rollout
asks one of them. An `Asker` takes its questions to a model: workers send them over the bus.
Re-verification takes recorded answers (`RecordedAnswers`), so that a judge is not asked and paid again; the
contract and an author's tests take scripted ones (`ScriptedAnswers`), which may also be failures.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Raw

from gym_runtime import clock
from gym_runtime.environment.role_prompts import harmless
from gym_runtime.environment.verdict import Reply, Verdict, make_response
from gym_runtime.errors import (
    UNREADABLE,
    GymError,
    ModelUnavailable,
    ResourceError,
    TaskError,
    UnusableAnswer,
)
from gym_runtime.messages.calls import RoleAnswer, RoleUse, add_use
from gym_runtime.messages.responses import CreateParams, Usage
from gym_runtime.messages.transcripts import content_text, encoded

DIGEST_BYTES = 12
QUESTION_CHARACTERS = 8000
"""How much of a question a row keeps; all of it would let the rows of long conversations grow with the square
of their length."""
RESERVED = frozenset(
    {"policy", "model", "agent", "resource", "tool", "open", "reset", "step", "verify", "compare", "close"}
)
"""The policy itself, and the stages of a rollout: a failure of a role is told by the role's name."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_encode = msgspec.json.Encoder(order="sorted").encode
_encode_params = msgspec.json.Encoder().encode


class _Used(msgspec.Struct, frozen=True):
    usage: Usage | None = None


_decode_used = msgspec.json.Decoder(_Used).decode


class Role(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that an environment asks besides the policy.

    Attributes:
        name: a Python identifier in lower case: the parameter of ``verify`` that takes it.
        sampling: how it samples unless a question says otherwise: fields of ``responses_create_params``.
        concurrency: questions in flight at most, per resource worker.
        timeout_s: how long one answer may take, in seconds; the rollout's deadline holds besides.
        optional: the environment can do without it, and gets None where no model is given.
    """

    name: str
    sampling: dict[str, Any] = {}
    concurrency: Annotated[int, msgspec.Meta(ge=1)] = 64
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    optional: bool = False

    def problem(self) -> str:
        """The fault in it; empty if it is valid."""
        if not _NAME.fullmatch(self.name):
            return f"a role's name is a Python identifier in lower case, not {self.name!r}"
        if self.name in RESERVED:
            return f"no role can be named {self.name!r}: failures are told apart by this name"
        try:
            # Constructing a struct checks nothing; converting one does.
            msgspec.convert(msgspec.to_builtins(self), Role)
        except msgspec.ValidationError as error:
            return f"role {self.name!r}: {error}"
        try:
            create_params(_encode(self.sampling))
        except msgspec.ValidationError as error:
            return f"the sampling of role {self.name!r}: {error}"
        return ""


class Answer(Reply):
    """What a model in a role answered: a `Reply`, with what it was asked.

    Attributes:
        asked: ``responses_create_params`` as they were sent: the input and what was said of the sampling.
    """

    def __init__(self, response: Raw | bytes, asked: Mapping[str, Any]) -> None:
        super().__init__(response)
        self.asked = asked

    @property
    def incomplete(self) -> str | None:
        """Why the answer stops short (``max_output_tokens``, ``content_filter``), or None."""
        details = self.response.incomplete_details
        if details is None and self.response.status != "incomplete":
            return None
        return (details and details.reason) or "incomplete"


class Asker(Protocol):
    """Takes a question to a model."""

    async def __call__(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        """The response to a conversation, as JSON.

        Raises:
            GymError: the role has no model.
        """
        ...


class Model:
    """A model in a role, as one rollout asks it.

    Args:
        sampling: what the run says of its sampling; it wins over the role's and the questions'.
    """

    def __init__(self, role: Role, ask: Asker, sampling: Mapping[str, Any] | None = None) -> None:
        self.role = role
        self._ask = ask
        self._sampling = dict(sampling or {})

    def under(self, role: Role) -> Model:
        """The same model, with what another environment says of the role."""
        return Model(role, self._ask, self._sampling)

    async def ask(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        system: str = "",
        whole: bool = True,
        **sampling: Any,
    ) -> Answer:
        """Have it answer.

        Control tokens of chat templates are broken up in all that it is told
        (`gym_runtime.environment.role_prompts`), because it may quote another model. An empty answer is an
        answer; what it means is the environment's to say.

        Args:
            prompt: the user's text, or the items of a conversation.
            system: the system message before it.
            whole: refuse an answer that was cut short. A judge that was cut short may have quoted a label
                without a verdict. Say False where a part is useful, as of a simulated user.
            sampling: fields of ``responses_create_params``, over those of the role.

        Raises:
            UnusableAnswer: it was cut short; its ``stage`` is the role's name.
            GymError: it did not answer; its ``stage`` is the role's name.
            ResourceError: there is no such sampling setting, or its value has a wrong type.
        """
        said = _told(_encode({**self.role.sampling, **sampling, **self._sampling}))
        try:
            params = create_params(said)
        except msgspec.ValidationError as error:
            raise ResourceError(f"the sampling of role '{self.role.name}': {error}") from error
        asked: list[Any] = [{"role": "system", "content": system}] if system else []
        asked += [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        items = [Raw(_told(encoded(item))) for item in asked]
        try:
            response = await self._ask(self.role, params, items)
        except GymError as error:
            error.stage = self.role.name
            raise
        answer = Answer(response, {"input": items, **msgspec.json.decode(said)})
        try:
            _ = answer.messages
        except UNREADABLE as error:
            raise ModelUnavailable(
                f"what role '{self.role.name}' answered is not a response: {error}", stage=self.role.name
            ) from error
        if whole and answer.incomplete:
            raise UnusableAnswer(
                f"what role '{self.role.name}' answered was cut short ({answer.incomplete}); let it answer "
                f"longer: --role-sampling {self.role.name}.max_output_tokens=N",
                stage=self.role.name,
            )
        return answer


class Models:
    """The models of one session by their roles: ``self.models.judge``."""

    def __init__(self, models: Mapping[str, Model] | None = None) -> None:
        self._models = dict(models or {})

    def __getattr__(self, role: str) -> Model:
        found = None if role.startswith("_") else self._models.get(role)
        if found is None:
            raise AttributeError(
                f"no model in the role '{role}': declare it in roles=(…) of the environment; "
                "one that is optional may not be given: models.get(…)"
            )
        return found

    def get(self, role: str) -> Model | None:
        """The model in a role; None for an optional one that was not given."""
        return self._models.get(role)

    def under(self, roles: Sequence[Role]) -> Models:
        """The same models as another environment declares its roles; without those that are not there."""
        return Models(
            {role.name: self._models[role.name].under(role) for role in roles if role.name in self._models}
        )


class JudgedVerdict(Verdict, frozen=True, omit_defaults=True):
    """A verdict on the wire, with what models in roles answered for it since the session began."""

    role_use: dict[str, RoleUse] = {}  # noqa: RUF012 - a msgspec field, copied for each
    role_answers: list[RoleAnswer] = []  # noqa: RUF012


class JudgedPending(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A `Pending` on the wire, with what models in roles answered for it since the session began.

    Attributes:
        features: JSON; empty in what is a verdict and no `Pending`.
    """

    features: Raw = Raw()
    role_use: dict[str, RoleUse] = {}
    role_answers: list[RoleAnswer] = []


class RoleLog:
    """What models in roles have answered, in the order in which they answered."""

    def __init__(self, answers: Sequence[RoleAnswer] = (), use: Mapping[str, RoleUse] | None = None) -> None:
        self.use = dict(use or {})
        self.answers = list(answers)

    def add(self, answer: RoleAnswer, use: RoleUse) -> None:
        """Note an answer."""
        self.answers.append(answer)
        add_use(self.use, {answer.role: use})

    def note(self, role: str, digest: str, items: Sequence[Raw], response: Raw, seconds: float) -> None:
        """Note a response to some items, and its usage."""
        try:
            usage = _decode_used(response).usage or Usage()
        except UNREADABLE as error:
            raise ModelUnavailable(f"what role '{role}' answered is not a response: {error}") from error
        use = RoleUse(
            calls=1,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            seconds=round(seconds, 6),
        )
        known = any(answer.digest == digest for answer in self.answers)
        question = "" if known or not items else _asked(items[-1])
        self.add(RoleAnswer(role=role, digest=digest, response=response, question=question), use)

    def extend(self, other: RoleLog) -> None:
        """Note the answers of another log after these."""
        self.answers += other.answers
        add_use(self.use, other.use)

    def judged(self, verdict: Verdict) -> JudgedVerdict:
        """A verdict with the notes of this log."""
        given = msgspec.structs.asdict(verdict)
        return JudgedVerdict(**given, role_use=self.use, role_answers=self.answers)

    def pending(self, features: Raw) -> JudgedPending:
        """The features of a `Pending` with the notes of this log."""
        return JudgedPending(features=features, role_use=self.use, role_answers=self.answers)


def _asked(item: Raw) -> str:
    """The text of a question for its reader. Both ends are kept: instructions stand at either."""
    text = content_text(_decode_item(item).get("content"))
    half = QUESTION_CHARACTERS // 2
    return text if len(text) <= QUESTION_CHARACTERS else f"{text[:half]}\n…\n{text[-half:]}"


def _told(encoded: bytes) -> bytes:
    """What a model is told, as JSON, without control tokens."""
    if b"\\u" in encoded:  # JSON that an environment passes on may spell a token's characters as escapes
        encoded = _encode_params(msgspec.json.decode(encoded))
    return harmless(str(encoded, "utf-8")).encode()


def models_of(
    roles: Sequence[Role],
    given: Callable[[Role], bool],
    ask: Asker,
    sampling: Mapping[str, Mapping[str, Any]] | None = None,
) -> Models:
    """The models of an environment's roles: all that are required, and those of the others that are given.

    Args:
        sampling: what the run says of each role's.
    """
    said = sampling or {}
    chosen = [role for role in roles if not role.optional or given(role)]
    return Models({role.name: Model(role, ask, said.get(role.name)) for role in chosen})


def question_digest(role: str, params: Raw, items: Sequence[Raw]) -> str:
    """What identifies a question: the role, the parameters, the input."""
    found = blake2b(role.encode(), digest_size=DIGEST_BYTES)
    for part in (params, *items):
        found.update(b"\n")
        found.update(part)
    return found.hexdigest()


@lru_cache(maxsize=256)
def create_params(sampling: bytes) -> Raw:
    """The parameters of a call, without its input, for a sampling as JSON.

    Raises:
        msgspec.ValidationError: a name or a value does not fit.
    """
    return Raw(_encode_params(msgspec.json.decode(sampling, type=CreateParams)))


_decode_item = msgspec.json.Decoder(dict[str, Any]).decode

Scripted = str | Mapping[str, Any] | Exception
"""A text, a whole response object, or what is raised instead of an answer."""


class RecordedAnswers:
    """Answers each question as it was answered before; the same question several times in the same order."""

    def __init__(self, answers: Sequence[RoleAnswer]) -> None:
        self._answers: defaultdict[str, deque[Raw]] = defaultdict(deque)
        self.roles = frozenset(answer.role for answer in answers)
        for answer in answers:
            self._answers[answer.digest].append(answer.response)

    async def __call__(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        found = self._answers[question_digest(role.name, params, items)]
        if not found:
            raise TaskError(
                f"the row holds no answer of role '{role.name}' to what it is asked now: the prompt, the "
                f"sampling or the rule changed since; ask a model again with --role {role.name}=PROVIDER/NAME"
            )
        # The last one stays: a verification that was repeated asks again.
        return found.popleft() if len(found) > 1 else found[0]

    def models(self, roles: Sequence[Role]) -> Models:
        """The models of some roles; an optional role only if it was asked."""
        return models_of(roles, lambda role: role.name in self.roles, self)


class RoleAnswers:
    """Answers of some roles by models, of the others as they were recorded.

    Args:
        sampling: what the recorded run said of each role's.

    Attributes:
        log: the answers so far.
        asked: a model was asked.
    """

    def __init__(
        self,
        recorded: RecordedAnswers,
        models: Mapping[str, Asker],
        sampling: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.log = RoleLog()
        self.asked = False
        self._recorded = recorded
        self._models = models
        self._sampling = sampling

    async def __call__(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        started_s = clock.monotonic()
        model = self._models.get(role.name)
        self.asked = self.asked or model is not None
        response = await (model or self._recorded)(role, params, items)
        digest = question_digest(role.name, params, items)
        self.log.note(role.name, digest, items, response, clock.monotonic() - started_s)
        return response

    def models(self, roles: Sequence[Role]) -> Models:
        """The models of some roles; an optional role only if it has a model or was asked."""
        given = self._recorded.roles | self._models.keys()
        return models_of(roles, lambda role: role.name in given, self, self._sampling)


class ScriptedAnswers:
    """The n-th question to a role gets its n-th answer; after the last one the role fails.

    Attributes:
        asked: the role and the input's items of each question, in order.
    """

    def __init__(self, answers: Mapping[str, Sequence[Scripted]]) -> None:
        self._answers = {role: list(scripted) for role, scripted in answers.items()}
        self.asked: list[tuple[str, list[dict[str, Any]]]] = []

    async def __call__(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        number = sum(name == role.name for name, _ in self.asked)
        self.asked.append((role.name, [_decode_item(item) for item in items]))
        scripted = self._answers.get(role.name, ())
        if number >= len(scripted):
            raise ModelUnavailable(f"the script of role '{role.name}' has {len(scripted)} answers, no more")
        answer = scripted[number]
        if isinstance(answer, Exception):
            raise answer
        return Raw(make_response(answer) if isinstance(answer, str) else _response(answer))

    def models(self, roles: Sequence[Role]) -> Models:
        """The models of some roles; an optional role only if it has a script."""
        return models_of(roles, lambda role: role.name in self._answers, self)


def _response(fields: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"id": "resp_0", "status": "completed", "output": [], **fields})
