from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest
from gym_resources.chemistry import litmus
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError, UsageError
from resources.judging import judge, nemo_gym_rows, outputs, row
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]
NAME = "litmus_agent"
BOX, PARENTHESES = {"answer_format": "fmt_07"}, {"answer_format": "fmt_00"}
NUMBER = {"answer_type": "float", **PARENTHESES}
NEAR = {"rule": "abs_window", "abs_tol": 2}
SHARE = {"rule": "rel_window", "rel_tol": 0.01}


async def worth(reply: str, expected: object, **fields: Any) -> tuple[float, str | None]:
    verdict = await judge(NAME, row(expected_answer=expected, **fields), reply)
    return verdict.reward, verdict.fields["extracted_answer"]


@table(
    ("reply", "fields", "answer"),
    [
        ("((1)) or rather (( 2 ))", NUMBER, "2"),
        ("((1)", NUMBER, None),
        ("it is 1", NUMBER, None),
        (r"\boxed{1}, no, \boxed{\frac{1}{2}}", {**NUMBER, **BOX}, r"\frac{1}{2}"),
        ("<final_answer> 7 </final_answer>", {**NUMBER, "answer_format": "fmt_15"}, "7"),
        ("**Answer: 7** or **answer: 8**.", {**NUMBER, "answer_format": "fmt_18"}, "8"),
        ("((1)) \\boxed{2}", {"property_type": "count", "use_box_format": True}, "2"),
        ("((1)) \\boxed{2}", {"property_type": "count"}, "1"),
        ("((1)) \\boxed{2}", {"property_type": "count", "use_box_format": True, **PARENTHESES}, "1"),
        ("so X=5; X=6", {**NUMBER, "answer_format": "fmt_29", "output_regex": "x=(\\d)"}, "6"),
        ("((" * 400_000, NUMBER, None),
        ("**Answer:" * 100_000, {**NUMBER, "answer_format": "fmt_18"}, None),
    ],
)
async def test_the_answer_is_in_the_last_wrapper(
    reply: str, fields: dict[str, Any], answer: str | None
) -> None:
    assert (await worth(reply, "1", **fields))[1] == answer


@table(
    ("answer", "expected", "fields", "reward"),
    [
        ("18.02 g/mol", "18.02", {}, 1.0),
        ("18.03", "18.02", {}, 0.0),
        ("1,500", 1500, {}, 1.0),
        ("2.4", "2", {"match": {"rule": "exact"}}, 1.0),
        ("2.6", "2", {"match": {"rule": "exact"}}, 0.0),
        ("98", "100", {"match": NEAR}, 1.0),
        ("97", "100", {"match": NEAR}, 0.0),
        ("18.1", "18.02", {"match": SHARE}, 1.0),
        ("18.3", "18.02", {"match": SHARE}, 0.0),
        ("5", "5.5", {"float_abs_tol": 0.5}, 1.0),
        ("nan", "5", {"match": {"rule": "abs_window", "abs_tol": 1e9}}, 0.0),
        ("1e999", "5", {"match": {"rule": "exact"}}, 0.0),
        ("9" * 100_000, "5", {"match": {"rule": "exact"}}, 0.0),
        ("4 or 5", "5", {}, 0.0),
        ("Yes.", "1", {"answer_type": "bool"}, 1.0),
        ("absent", False, {"answer_type": "bool"}, 1.0),
        ("present", "false", {"answer_type": "bool"}, 0.0),
        ("perhaps", "false", {"answer_type": "bool"}, 0.0),
        ("Carboxylic  ACID", "carboxylic acid", {"answer_type": "string"}, 1.0),
        ("acid", "carboxylic acid", {"answer_type": "string"}, 0.0),
        ("1", "1", {"answer_type": None, "property_type": "presence"}, 1.0),
    ],
)
async def test_an_answer_is_compared_by_the_rule_of_its_type_or_row(
    answer: str, expected: object, fields: dict[str, Any], reward: float
) -> None:
    assert (await worth(f"(({answer}))", expected, **{**NUMBER, **fields}))[0] == reward


@table(
    ("fields", "why"),
    [
        ({"answer_type": None}, "needs an answer_type"),
        ({"answer_format": "fmt_03"}, "'fmt_03' is unknown here.*output_regex"),
        ({"match": {}}, "rule"),
        ({"match": {"rule": "sometimes"}}, "sometimes"),
        ({"match": {"rule": "abs_window"}}, "needs 'abs_tol'"),
        ({"match": {"rule": "string_eq"}}, "does not compare"),
        ({"expected_answer": "many"}, "is no float"),
    ],
)
def test_a_row_that_cannot_be_judged_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(TaskError, match=why):
        catalogue.environment(NAME).resource.task(row(**{"expected_answer": "1", **NUMBER, **fields}))


@pytest.mark.parametrize(
    "answer", ["OCC", "C(O)C", "CCN", "CCO or CCN", "CCO not", "no molecule", "[" * 50_000]
)
async def test_molecules_are_compared_as_rdkit_reads_them(answer: str, isolation: None) -> None:
    pytest.importorskip("rdkit")
    found = await worth(f"(({answer}))", "CCO", answer_type="smiles", **PARENTHESES)
    assert found == (float(answer in ("OCC", "C(O)C")), answer)


async def test_without_rdkit_a_molecules_row_is_refused_before_a_model_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None: ...

    monkeypatch.setattr(litmus, "find_spec", missing)
    environment = catalogue.environment(NAME)
    assert environment.definition.opens_first
    with pytest.raises(UsageError, match=r"gym-runtime\[ether0\]"):
        await environment.resource.open(row(expected_answer="CCO", answer_type="smiles"))


async def test_a_row_with_the_python_tool_gets_a_session_with_rdkit(isolation: None) -> None:
    offered = {"type": "function", "name": "stateful_python_code_exec"}
    task = row(
        **{"expected_answer": "1", **NUMBER, "responses_create_params": {"input": "?", "tools": [offered]}}
    )
    calls: list[tuple[str, object]] = [("stateful_python_code_exec", {"code": "x = 6"})]
    calls += [("stateful_python_code_exec", {"code": "x * 7"})]
    if find_spec("rdkit"):
        code = "from rdkit import Chem\nChem.CanonSmiles('OCC')"
        calls += [("stateful_python_code_exec", {"code": code})]
    assert await outputs(NAME, task, calls) == ["", "42", "'CCO'"][: len(calls)]
    without = row(expected_answer="1", **NUMBER)
    assert await outputs(NAME, without, calls[:1]) == ['{"detail":"Not Found"}']


async def test_nemo_gyms_rows_are_worth_their_answers() -> None:
    wrappers = {
        "fmt_07": "\\boxed{%s}",
        "fmt_15": "<final_answer>%s</final_answer>",
        "fmt_18": "**Answer: %s**",
    }
    for line in nemo_gym_rows(NAME):
        fields = json.loads(line)
        box = fields.get("answer_format") or ("fmt_07" if fields.get("use_box_format") else "fmt_00")
        reply = wrappers.get(box, "((%s))") % fields["expected_answer"]
        assert (await judge(NAME, line, reply)).reward == 1.0


def test_rows_of_its_older_name_are_its_own() -> None:
    for ref in ("litmus_agent_agent", "rdkit_chemistry_agent", "rdkit_chemistry_simple_agent"):
        assert catalogue.resolve_agent_ref(ref) == NAME
