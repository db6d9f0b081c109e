"""The contract of environments: rules that each must keep, checked on its own example rows.

`check` needs no broker and no model. Isolated verifications run in sandboxed processes, as on a worker.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

import msgspec
from gym_runtime import AgentChoice, Environment, Pending, Verdict
from gym_runtime.environment import (
    SERVER_ERROR,
    Example,
    LoadedEnvironment,
    Resource,
    Scripted,
    ScriptedAnswers,
    catalogue,
    checked_agent,
    example_call,
    examples,
    hearing,
    requirements,
    schema_problems,
    session_of,
    watching,
)
from gym_runtime.errors import (
    GymError,
    ModelUnavailable,
    TaskError,
    UnusableAnswer,
    UsageError,
    described,
    leaf,
)

from gym_testing.checks.hints import exits_raise, hints, on_the_class, unawaited
from gym_testing.checks.subject import SILENCE, Subject
from gym_testing.memory.memory_store import MemoryStore

CHECK_BLOCKED_S = 0.5
"""What a step of the event loop may take: ten times the 50 ms of a worker, as the machine may be busy."""

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
    """Whether an environment keeps one rule; ``detail`` says where it does not.

    A ``warning`` is no violation.
    """

    rule: str
    passed: bool
    detail: str = ""
    warning: bool = False


Rule = Callable[[Subject], Awaitable[list[str]]]
RowRule = Callable[[Subject, Example], Awaitable[list[str]]]


def each_row(problems: RowRule) -> Rule:
    """A rule that is checked row by row; a row on which an author's code raises does not hide the others."""

    async def rule(subject: Subject) -> list[str]:
        found: list[tuple[Example, str]] = []
        for example in subject.examples:
            try:
                found += [(example, _same(problem)) for problem in await problems(subject, example)]
            except Exception as error:  # noqa: BLE001 - an author's code raised where it must not: the finding
                found.append((example, _same(described(leaf(error)))))
        return subject.placed(found)

    return rule


def _same(problem: str) -> str:
    """A problem without addresses of objects, which differ from row to row."""
    return re.sub(r" at 0x[0-9a-f]+", "", problem)


async def check(
    environment: LoadedEnvironment, starting: Callable[[str], None] = lambda rule: None
) -> list[Finding]:
    """Check every rule on one environment.

    Args:
        starting: called with each rule before it is checked.
    """
    try:
        requirements.require(environment)
        subject = Subject(environment, examples.read(environment))
    except UsageError as error:
        return [Finding("its packages and example rows are there", False, error.message)]
    fits = await _finding("the example rows fit the task", _fits, subject)
    if not fits.passed:  # every other rule would say the same
        return [fits]
    findings: list[Finding] = []
    before = on_the_class(subject.resource.session_type)
    rules = {**RULES, **(ROLE_RULES if subject.resource.roles else {})}
    rules |= SAVE_RULES if subject.resource.saves else {}
    blocking: dict[str, str] = {}
    with exits_raise(), unawaited() as forgotten:
        for rule, problems in rules.items():
            starting(rule)
            blocked: list[str] = []
            async with watching(CHECK_BLOCKED_S, lambda place, _, found=blocked: found.append(place)):
                findings.append(await _finding(rule, problems, subject))
            for place in blocked:
                blocking.setdefault(place, rule)
    if blocking:
        findings.append(_blocking(blocking))
    if forgotten:
        findings.append(Finding("what is asynchronous is awaited", False, "; ".join(forgotten)))
    findings += [
        Finding(rule, True, detail, warning=True)
        for rule, detail in hints(environment, subject.resource, before)
    ]
    return findings


def _blocking(places: Mapping[str, str]) -> Finding:
    """The finding of blocking lines, each with the first rule whose check it blocked."""
    found = "; ".join(f"{place} (while '{rule}' was checked)" for place, rule in places.items())
    detail = (
        f"for more than {CHECK_BLOCKED_S:g} s the event loop was blocked by {found}, which stops every other "
        "rollout of a worker; await code that waits, and set isolated=True for code that computes"
    )
    return Finding("nothing blocks the event loop", False, detail)


async def _finding(rule: str, problems: Rule, subject: Subject) -> Finding:
    try:
        found = await problems(subject)
    # An author's code raised where it must not: the finding. Its task group may have made a group of it.
    except BaseException as raised:
        error = leaf(raised)
        if not isinstance(error, Exception):
            raise
        found = [described(error)]
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


@each_row
async def _fits(subject: Subject, example: Example) -> list[str]:
    try:
        subject.resource.task(example.row)
    except TaskError as error:
        return [error.message]
    return []


async def _names_exist(subject: Subject) -> list[str]:
    said = _agent_problems(subject.environment.definition)
    roles = [role.name for role in subject.resource.roles]
    strange = [(one, name) for one in subject.examples for name in one.roles if name not in roles]
    what = "'gold' answers in the role '{}'{}"
    return said + subject.placed((one, what.format(n, catalogue.unknown(n, roles))) for one, n in strange)


def _agent_problems(definition: Environment) -> list[str]:
    """The agents that an environment names and that are not there, or have no such option."""
    found: list[str] = []
    for choice in (AgentChoice(definition.agent, definition.agent_options), *definition.agents.values()):
        if not catalogue.exists("agents", choice.name):
            near = catalogue.suggest(choice.name, catalogue.names("agents"), "agents")
            found.append(f"there is no agent '{choice.name}'{near}")
        try:
            checked_agent(choice)
        except UsageError as error:
            found.append(str(error))
    return found


async def _example_rows(subject: Subject) -> list[str]:
    count = len(subject.examples)
    problems = [f"{count} example rows instead of {EXAMPLES}"] if count < EXAMPLES else []
    return problems + await _inputs(subject)


@each_row
async def _inputs(subject: Subject, example: Example) -> list[str]:
    task = subject.resource.task(example.row)
    if subject.environment.definition.shape == "episode" or task.responses_create_params.input_items():
        return []
    return ["the row has no input for the model"]


@each_row
async def _gold(subject: Subject, example: Example) -> list[str]:
    played = await subject.perfect(example)
    with hearing() as heard:
        verdict, _ = await subject.gold(example)
    wrong = _scored(verdict, subject.environment.definition.gold_reward)
    said = [*wrong, *played.raised, *heard.raised, *played.refused, *heard.refused]
    return ["; ".join(dict.fromkeys(said))] if wrong else []


@each_row
async def _goes_on(subject: Subject, example: Example) -> list[str]:
    """What a session has saved is all that another worker gets."""
    played = (await subject.perfect(example)).response
    told, verdict = await examples.play_with_losses(subject.resource, example, MemoryStore())
    again = "" if told == played else "; its answers differ, too"
    if isinstance(verdict, Pending):
        return ["its answers differ after on_restore"] if again else []
    wrong = _scored(verdict, (await subject.gold(example))[0].reward)
    return [f"{one} after save and on_restore{again}" for one in wrong]


@each_row
async def _silence(subject: Subject, example: Example) -> list[str]:
    return _scored(await subject.judge(example, SILENCE), subject.environment.definition.silence_reward)


def _scored(verdict: Verdict, wanted: float) -> list[str]:
    if abs(verdict.reward - wanted) <= 1e-9:
        return []
    return [f"scores {verdict.reward:g} instead of {wanted:g}"]


@each_row
async def _roles_that_misbehave(subject: Subject, example: Example) -> list[str]:
    """A role that fails must not become a reward; one that says nothing or stops short breaks no rule."""
    if not example.roles:
        return []
    problems: list[str] = []
    response = (await subject.perfect(example)).response
    gold = example.answers()
    await subject.judge(example, response, gold)
    for position, (role, _) in enumerate(gold.asked):
        before = sum(name == role for name, _ in gold.asked[:position])
        failed = ModelUnavailable("the contract lets this role fail")
        with suppress(GymError):
            verdict = await subject.judge(example, response, _but(example, role, before, failed))
            problems.append(
                f"scores {verdict.reward:g} though the role '{role}' failed at its question {before + 1}: "
                "let the error pass"
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


@each_row
async def _judges_alike(subject: Subject, example: Example) -> list[str]:
    _, first = await subject.gold(example)
    second = _encode(await subject.judge(example, (await subject.perfect(example)).response))
    return [f"{first.decode()}, then {second.decode()}"] if first != second else []


@each_row
async def _plays_alike(subject: Subject, example: Example) -> list[str]:
    if not subject.environment.definition.replayable:
        return []
    if (await subject.perfect(example)).response == await examples.play(subject.resource, example):
        return []
    remedy = "take numbers from the row or a seed, or say replayable=False"
    return [f"the same rollout got different answers from the environment; {remedy}"]


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


# -- the rules about tools ----------------------------------------------------------------------------


@each_row
async def _tools_match(subject: Subject, example: Example) -> list[str]:
    """The tools in the rows that differ from the environment's."""
    tools = subject.resource.task(example.row).responses_create_params.tools
    decoded = [cast("Mapping[str, Any]", msgspec.json.decode(raw)) for raw in tools]
    return [problem for tool in decoded for problem in _tool_problems(subject, tool)]


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
    problems = await _plays_without_raising(subject)
    for name, tool in subject.resource.tools.items():
        _, arguments = example_call(_encode(tool.definition()))
        models = subject.examples[0].answers().models(subject.resource.roles)
        with hearing() as heard:
            async with session_of(subject.resource, subject.examples[0].row, models) as session:
                await subject.resource.call_tool(session, name, arguments)
        problems += [f"{name}({arguments}): {error}" for error in dict.fromkeys(heard.raised)]
    return problems


@each_row
async def _plays_without_raising(subject: Subject, example: Example) -> list[str]:
    return list(dict.fromkeys((await subject.perfect(example)).raised))


async def _answers_bad_calls(subject: Subject) -> list[str]:
    """The calls with wrong names or arguments that break a tool instead of being answered."""
    resource, problems = subject.resource, list[str]()
    for name, arguments in _bad_calls(resource):
        models = subject.examples[0].answers().models(resource.roles)
        async with session_of(resource, subject.examples[0].row, models) as session:
            if await resource.call_tool(session, name, arguments) == SERVER_ERROR:
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
    "its agents, and the roles of its golds, are there": _names_exist,
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

SAVE_RULES: dict[str, Rule] = {"a saved session goes on": _goes_on}
"""For environments whose sessions save their state."""
