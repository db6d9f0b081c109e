from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from gym_resources.judging.math_answers import bare, load_library, whole_number
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.isolated import verify_isolated
from gym_runtime.environment.replaying import rejudge
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.errors import TaskError
from resources.judging import nemo_gym_rows, usable
from tables import table

pytestmark = pytest.mark.anyio


@pytest.fixture
def source() -> str:
    environment = usable("math_with_judge")
    return str(environment.source)


async def judge(source: str, expected: str, *items: Any) -> Verdict:
    row = {"responses_create_params": {"input": "?"}, "question": "?", "expected_answer": expected}
    resource = catalogue.environment(source).resource
    return await rejudge(resource, msgspec.json.encode(row), make_response(*items))


ANSWERS: list[tuple[str, str, float]] = [
    ("32", r"It is \boxed{32}.", 1.0),
    ("32", r"It is \boxed{32.0}.", 1.0),
    ("32", r"It is \boxed{\frac{64}{2}}.", 1.0),
    ("32", r"It is \boxed{33}.", 0.0),
    ("32", "The answer is 32.", 1.0),
    ("32", "31, or rather 32", 1.0),
    # As the library's version 0.8.0 says, with which recorded rewards were made; later ones differ.
    ("50", r"\boxed{50\%}", 0.0),
    ("32", r"\boxed{33} is wrong for this. \boxed{32}", 0.0),
    ("32", r"\boxed{32} is more than 31", 1.0),
    ("32", r"$32$", 1.0),
    ("32", r"\boxed{x = 32}", 1.0),
    ("32", r"\boxed{32", 0.0),
    ("32", r"\boxed{}", 0.0),
    ("32", "I give up.", 0.0),
    ("32", "", 0.0),
    ("0.333333", r"\boxed{\frac13}", 1.0),
    (r"\(\frac{333}{1997}\)", r"\boxed{\dfrac{333}{1997}}", 1.0),
    (r"\frac{1}{2}", r"\boxed{50\%}", 1.0),
    (r"\{1, 2\}", r"\boxed{\{2, 1\}}", 1.0),
    ("(1, 2)", r"\boxed{(2, 1)}", 0.0),
    ("x^2 - 1", r"\boxed{(x-1)(x+1)}", 1.0),
    ("x^2 - 1", r"\boxed{(y-1)(y+1)}", 0.0),
]


@pytest.mark.slow
async def test_answers_are_compared_symbolically(source: str) -> None:
    for expected, text, reward in ANSWERS:
        verdict = await judge(source, expected, text)
        assert (verdict.reward, verdict.fields["library_reward"]) == (reward, reward), (expected, text)

    # All messages count, and nothing else.
    assert (await judge(source, "32", r"\boxed{32}", "I am sure.")).reward == 1.0
    assert (await judge(source, "32", r"\boxed{32}", r"No: \boxed{33}")).reward == 0.0
    assert (await judge(source, "32", {"type": "reasoning", "summary": []})).reward == 0.0

    # The answer is shown as it was written, even one that nobody wants to see computed.
    assert (await judge(source, "32", r"\boxed{2^{100000}}")).fields["extracted_answer"] == "2^{100000}"
    assert (await judge(source, "32", "")).fields["extracted_answer"] is None

    # Around what is expected, one pair of each kind does not matter, in this order.
    for expected in (r"\(32\)", "$32$", r" \( $32$ \) "):
        assert (await judge(source, expected, r"\boxed{32}")).reward == 1.0


@pytest.mark.slow
def test_a_whole_number_is_what_the_library_reads_in_it(source: str) -> None:
    library = load_library()
    for number in ("0", "7", "007", "32", "100", "1" * 40, "9" * 100):
        read = library.parse(rf"\boxed{{{number}}}", (library.latex,), parsing_timeout=None)
        found = whole_number(number)
        assert found == read
        assert [*map(type, found)] == [*map(type, read)]
    for other in ("", "-1", "+1", "1.0", "1/2", "1,000", "٣", "x", "9" * 101):
        assert whole_number(other) == []


@pytest.mark.parametrize("expected", ["", " ", r"\(\)", r"\( $$ \)"])
def test_a_row_without_an_expected_answer_is_refused(source: str, expected: str) -> None:
    row = {"responses_create_params": {"input": "?"}, "expected_answer": expected}
    with pytest.raises(TaskError, match="'expected_answer' is empty"):
        catalogue.environment(source).resource.task(msgspec.json.encode(row))


@table(
    ("answer", "without"),
    [
        (r"\(x\)", "x"),
        ("$x$", "x"),
        (r"\( $x$ \)", "x"),
        (r"$\(x\)$", r"\(x\)"),
        ("$$x$$", "$x$"),
        (r"\(x", r"\(x"),
        ("$", "$"),
    ],
)
def test_a_pair_of_each_kind_around_an_answer_is_dropped(answer: str, without: str) -> None:
    assert bare(answer) == without


def test_rows_of_its_data_sets_are_tasks(source: str) -> None:
    """What data sets put beside question and answer, or leave out, does not matter."""
    resource = catalogue.environment(source).resource
    params = {"input": [{"role": "user", "content": "?"}]}
    more: list[dict[str, Any]] = [
        {"question": "?", "agent_ref": {"type": "responses_api_agents", "name": "dapo17k_simple_agent"}},
        {"question": None, "verifier_metadata": {"problem_source": "aops_c4_high_school_math"}},
        {"uuid": "66b63bde", "license": None, "pass_rate_72b_tir": "n/a", "reward_profiles": []},
    ]
    for fields in more:
        row = {"responses_create_params": params, "expected_answer": "32", **fields}
        assert resource.task(msgspec.json.encode(row)).responses_create_params is not None


def test_its_data_go_by_several_names() -> None:
    for name in ("math_with_judge_simple_agent", "dapo17k_simple_agent", "math_stack_overflow_simple_agent"):
        assert catalogue.resolve_agent_ref(name) == "math_with_judge"


@pytest.mark.slow
async def test_the_expected_answer_itself_scores_full_on_rows_in_nemo_gyms_format(source: str) -> None:
    for line in nemo_gym_rows("math_with_judge"):
        gold = rf"So \boxed{{{json.loads(line)['expected_answer']}}}"
        assert (await verify_isolated(source, line, bytes(Reply.of(gold).raw), 15)).reward == 1.0
