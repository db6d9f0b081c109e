"""The contract of environments: rules that each must keep, checked on its own example rows.

`check` needs no broker and no model. Isolated verifications run in sandboxed processes, as on a worker.
"""

from __future__ import annotations

import ast
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

import msgspec
from gym_runtime import Episode, Pending, Verdict, make_response
from gym_runtime.environment import (
    SERVER_ERROR,
    Example,
    LoadedEnvironment,
    Models,
    Resource,
    Scripted,
    ScriptedAnswers,
    as_features,
    example_call,
    examples,
    hearing_errors,
    judge_recorded,
    no_verdicts,
    requirements,
    schema_problems,
    session_of,
    watching,
)
from gym_runtime.errors import GymError, ModelUnavailable, TaskError, UnusableAnswer, UsageError, from_fault
from gym_runtime.messages import Candidate

CHECK_BLOCKED_S = 0.5
"""How long one step of the event loop may take in ``gym-runtime test``: ten times the 50 ms of a worker,
because the machine may be busy."""

SILENCE = make_response()
EXAMPLES = 5
MAX_LINES = 150
SPARE_ANSWER = "done"
SPARE_ANSWERS = 8
ODD_ANSWERS: tuple[Scripted, ...] = (
    "",
    {"output": []},
    {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    {"output": [{"type": "reasoning", "id": "rs", "summary": []}]},
)
"""A role that says nothing, stops short, or only thinks."""
BROKEN_ARGUMENTS = ("{}", "", "{", "[]", "null", '"text"', '{"a": "\\ud800"}', '{"a":' + 9999 * "[")
WRONG_VALUES: tuple[Any, ...] = ({"wrong": "type"}, ["wrong type"], "wrong type", 0.5, True)

_encode = msgspec.json.Encoder().encode


class Finding(msgspec.Struct, frozen=True):
    """Whether an environment keeps one rule; ``detail`` says where it does not, or has a measurement.

    A ``warning`` is no violation.
    """

    rule: str
    passed: bool
    detail: str = ""
    warning: bool = False


class Subject(msgspec.Struct, frozen=True):
    """The environment that is checked, and its examples."""

    environment: LoadedEnvironment
    examples: list[Example]

    @property
    def resource(self) -> Resource:
        return self.environment.resource

    async def judge(
        self, example: Example, response: bytes, answers: ScriptedAnswers | None = None
    ) -> Verdict:
        """The verdict on a rollout, reached as a worker reaches it; it can be written as JSON.

        Args:
            answers: of the models in roles; by default those of the perfect rollout.
        """
        models = (answers or example.answers()).models(self.resource.roles)
        verdict = await judge_recorded(self.environment, example.row, response, models)
        if isinstance(verdict, Pending):
            verdict = await self._compared(example, response, verdict, models)
        _encode(verdict)
        return verdict

    async def _compared(self, example: Example, response: bytes, pending: Pending, models: Models) -> Verdict:
        """The verdict on one of two that are compared: the first is the perfect rollout, the second silence.

        A rollout that is neither takes the place of the first.
        """
        place = int(response == SILENCE)
        other = SILENCE if not place else await examples.play(self.resource, example)
        beside = await judge_recorded(self.environment, example.row, other, models)
        pair = [pending, beside if isinstance(beside, Pending) else pending]
        candidates = [
            Candidate(rollout_index=index, features=as_features(one.features))
            for index, one in enumerate(pair[::-1] if place else pair)
        ]
        verdict = (await self.resource.compare(example.row, candidates, models))[place]
        if verdict.reward is None:
            raise from_fault(verdict.fault or no_verdicts("nothing").fault())
        return Verdict(verdict.reward, verdict.components, dict(verdict.fields))


Rule = Callable[[Subject], Awaitable[list[str]]]


async def check(environment: LoadedEnvironment) -> list[Finding]:
    """Check every rule on one environment, and measure how long a verification takes."""
    try:
        requirements.require(environment)
        subject = Subject(environment, examples.read(environment))
    except UsageError as error:
        return [Finding("its packages and example rows are there", False, error.message)]
    findings: list[Finding] = []
    rules = {**RULES, **(ROLE_RULES if subject.resource.roles else {})}
    for rule, problems in rules.items():
        blocked: list[str] = []
        async with watching(CHECK_BLOCKED_S, lambda place, _, found=blocked: found.append(place)):
            findings.append(await _finding(rule, problems, subject))
        if blocked:
            findings.append(_blocking(rule, blocked[0]))
    undescribed = [
        tool.name for tool in subject.resource.tools.values() if not tool.definition()["description"]
    ]
    if undescribed:
        detail = f"{', '.join(undescribed)}: the model reads the first line of a tool's docstring"
        findings.append(Finding("every tool has a docstring", True, detail, warning=True))
    if all(finding.passed for finding in findings):
        findings.append(Finding("time to verify", True, f"{await _verify_us(subject):.0f} µs"))
    return findings


def _blocking(rule: str, place: str) -> Finding:
    detail = (
        f"while '{rule}' was checked, {place} blocked the event loop for more than {CHECK_BLOCKED_S:g} s, "
        "which stops every other rollout of a worker; await code that waits, and set isolated=True for code "
        "that computes"
    )
    return Finding("nothing blocks the event loop", False, detail)


async def _finding(rule: str, problems: Rule, subject: Subject) -> Finding:
    try:
        found = await problems(subject)
    except Exception as error:  # noqa: BLE001 - an author's code raised where it must not, which is the finding
        found = [f"{type(error).__name__}: {error}"]
    return Finding(rule, not found, "; ".join(found))


async def _explains_itself(subject: Subject) -> list[str]:
    source = subject.environment.source.read_text("utf-8")
    lines = source.count("\n")
    problems: list[str] = []
    if not ast.get_docstring(ast.parse(source)):
        problems.append("its module has no docstring")
    if not subject.environment.definition.description.strip():
        problems.append("its description is empty")
    if lines > MAX_LINES:
        problems.append(f"its module has {lines} lines, more than {MAX_LINES}; move shared parts elsewhere")
    return problems


async def _example_rows(subject: Subject) -> list[str]:
    problems: list[str] = []
    if len(subject.examples) < EXAMPLES:
        problems.append(f"{len(subject.examples)} example rows instead of {EXAMPLES}")
    for example in subject.examples:
        task = subject.resource.task(example.row)
        if (
            subject.environment.definition.shape != "episode"
            and not task.responses_create_params.input_items()
        ):
            problems.append(f"row {example.number} has no input for the model")
    return problems


async def _gold(subject: Subject) -> list[str]:
    wanted = subject.environment.definition.gold_reward
    return await _scores(subject, wanted, lambda example: examples.play(subject.resource, example))


async def _silence(subject: Subject) -> list[str]:
    async def silence(_: Example) -> bytes:
        return SILENCE

    return await _scores(subject, subject.environment.definition.silence_reward, silence)


async def _scores(
    subject: Subject, wanted: float, rollout: Callable[[Example], Awaitable[bytes]]
) -> list[str]:
    problems: list[str] = []
    for example in subject.examples:
        with hearing_errors() as heard:
            verdict = await subject.judge(example, await rollout(example))
        if abs(verdict.reward - wanted) > 1e-9:
            scored = f"row {example.number} scores {verdict.reward:g} instead of {wanted:g}"
            problems.append("; ".join((scored, *dict.fromkeys(heard))))
    return problems


async def _roles_that_misbehave(subject: Subject) -> list[str]:
    """A role that fails must not become a reward; one that says nothing or stops short breaks no rule."""
    problems: list[str] = []
    for example in subject.examples:
        if not example.roles:
            continue
        response = await examples.play(subject.resource, example)
        gold = example.answers()
        await subject.judge(example, response, gold)
        for place, (role, _) in enumerate(gold.asked):
            before = sum(name == role for name, _ in gold.asked[:place])
            failed = ModelUnavailable("the contract lets this role fail")
            with suppress(GymError):
                verdict = await subject.judge(example, response, _but(example, role, before, failed))
                problems.append(
                    f"row {example.number} scores {verdict.reward:g} though the role '{role}' failed at its "
                    f"question {before + 1}: let the error pass"
                )
            for odd in ODD_ANSWERS:
                with suppress(UnusableAnswer):
                    await subject.judge(example, response, _but(example, role, before, odd))
    return problems


def _but(example: Example, role: str, number: int, answer: Scripted) -> ScriptedAnswers:
    """The roles of the perfect rollout, but that one of them answers one of its questions like this."""
    scripted: dict[str, list[Scripted]] = {name: list(texts) for name, texts in example.roles.items()}
    scripted[role][number] = answer
    for answers in scripted.values():
        answers += [SPARE_ANSWER] * SPARE_ANSWERS  # a rule may ask more than in the perfect rollout
    return ScriptedAnswers(scripted)


async def _judges_alike(subject: Subject) -> list[str]:
    problems: list[str] = []
    for example in subject.examples:
        response = await examples.play(subject.resource, example)
        verdicts = [_encode(await subject.judge(example, response)) for _ in range(2)]
        if verdicts[0] != verdicts[1]:
            problems.append(f"row {example.number}: {verdicts[0].decode()}, then {verdicts[1].decode()}")
    return problems


async def _plays_alike(subject: Subject) -> list[str]:
    return [
        f"row {example.number}: the same rollout got different answers from the environment"
        for example in subject.examples
        if await examples.play(subject.resource, example) != await examples.play(subject.resource, example)
    ]


async def _refuses_bad_rows(subject: Subject) -> list[str]:
    problems: list[str] = []
    for what, rows in _bad_rows(subject):
        if not any(_refused(subject.resource, row) for row in rows):
            problems.append(f"accepted: {what}")
    return problems


def _bad_rows(subject: Subject) -> Iterator[tuple[str, list[bytes]]]:
    """A mistake, and rows with it, of which at least one must be refused."""
    yield "a row that is not an object", [b"[]"]
    yield "a row that is cut off", [subject.examples[0].row[:-1]]
    fields = subject.examples[0].fields
    params = {**fields["responses_create_params"], "input": [{"content": "an item without a role"}]}
    yield "a row with a malformed item in its input", [_encode({**fields, "responses_create_params": params})]
    for field in msgspec.structs.fields(subject.resource.task_type):
        name = field.encode_name
        if field.required or name == "responses_create_params":
            without = {key: value for key, value in fields.items() if key != name}
            yield f"a row without '{name}'", [_encode(without)]
            if field.type not in (Any, msgspec.Raw):
                yield (
                    f"a row with a '{name}' of a wrong type",
                    [_encode({**fields, name: wrong}) for wrong in WRONG_VALUES],
                )


def _refused(resource: Resource, row: bytes) -> bool:
    try:
        resource.task(row)
    except TaskError:
        return True
    return False


async def _verify_us(subject: Subject) -> float:
    """The median time of a verification, in microseconds."""
    times_ns: list[int] = []
    for example in subject.examples:
        response = await examples.play(subject.resource, example)
        if subject.environment.definition.isolated:
            start_ns = time.perf_counter_ns()
            await subject.judge(example, response)
            times_ns.append(time.perf_counter_ns() - start_ns)
            continue
        models = example.answers().models(subject.resource.roles)
        async with session_of(subject.resource, example.row, models) as session:
            if isinstance(session, Episode):
                await subject.resource.reset(session)
            start_ns = time.perf_counter_ns()
            await subject.resource.verify(session, response)
            times_ns.append(time.perf_counter_ns() - start_ns)
    return statistics.median(times_ns) / 1000


# -- the rules about tools ----------------------------------------------------------------------------


async def _tools_match(subject: Subject) -> list[str]:
    """The tools in the rows that differ from the environment's."""
    problems: list[str] = []
    for example in subject.examples:
        task = subject.resource.task(example.row)
        for raw in task.responses_create_params.tools:
            tool = cast("Mapping[str, Any]", msgspec.json.decode(raw))
            problems += [f"row {example.number}: {problem}" for problem in _tool_problems(subject, tool)]
    return problems


def _tool_problems(subject: Subject, tool: Mapping[str, Any]) -> Iterator[str]:
    name = tool.get("name")
    parameters = tool.get("parameters")
    if tool.get("type") != "function" or not isinstance(name, str):
        return
    if not isinstance(parameters, dict):
        yield f"the tool '{name}' has no parameters"
        return
    shown = cast("Mapping[str, Any]", parameters)
    yield from (f"the tool '{name}': {problem}" for problem in schema_problems(shown))
    known = subject.resource.tools
    if not known:
        return
    if name not in known:
        yield f"the tool '{name}' is not one of the environment's: {', '.join(known)}"
        return
    own = known[name].definition()["parameters"]
    odd = set(shown.get("properties", ())) ^ set(own["properties"])
    if odd:
        yield f"the tool '{name}' differs from the environment's in: {', '.join(sorted(odd))}"


async def _tools_work(subject: Subject) -> list[str]:
    """The tools that raise, in the perfect rollouts and with example arguments."""
    problems: list[str] = []
    with hearing_errors() as heard:
        for example in subject.examples:
            before = len(heard)
            await examples.play(subject.resource, example)
            problems += [f"row {example.number}: {error}" for error in dict.fromkeys(heard[before:])]
        for name, tool in subject.resource.tools.items():
            before = len(heard)
            _, arguments = example_call(_encode(tool.definition()))
            models = subject.examples[0].answers().models(subject.resource.roles)
            async with session_of(subject.resource, subject.examples[0].row, models) as session:
                await subject.resource.call_tool(session, name, arguments)
            problems += [f"{name}({arguments}): {error}" for error in dict.fromkeys(heard[before:])]
    return problems


async def _answers_bad_calls(subject: Subject) -> list[str]:
    """The calls with wrong names or arguments that break a tool instead of being answered."""
    resource, problems = subject.resource, list[str]()
    for name, arguments in _bad_calls(resource):
        models = subject.examples[0].answers().models(resource.roles)
        async with session_of(resource, subject.examples[0].row, models) as session:
            answer = cast("object", await resource.call_tool(session, name, arguments))
            if not isinstance(answer, str):
                problems.append(f"{name}({arguments:.20}) answers {answer!r}, which is not a text")
            elif answer == SERVER_ERROR:
                problems.append(f"{name}({arguments:.20}) broke the tool")
    return problems


def _bad_calls(resource: Resource) -> Iterator[tuple[str, str]]:
    yield "no_such_tool", "{}"
    for name, tool in resource.tools.items():
        yield from ((name, arguments) for arguments in BROKEN_ARGUMENTS)
        wrong = {parameter: {"wrong": "type"} for parameter in tool.definition()["parameters"]["required"]}
        yield name, _encode(wrong).decode()


RULES: dict[str, Rule] = {
    "the module explains itself": _explains_itself,
    "there are at least five example rows": _example_rows,
    "the perfect rollout scores full": _gold,
    "silence scores nothing": _silence,
    "judging twice gives the same verdict": _judges_alike,
    "playing twice gives the same answers": _plays_alike,
    "bad rows are refused": _refuses_bad_rows,
    "the rows' tools are the environment's": _tools_match,
    "tools do not raise": _tools_work,
    "bad calls are answered": _answers_bad_calls,
}
ROLE_RULES: dict[str, Rule] = {"a role that fails is no reward": _roles_that_misbehave}
"""For environments that ask models in roles."""
