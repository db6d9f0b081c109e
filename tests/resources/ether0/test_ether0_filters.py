"""Filters, functional groups, rows."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from gym_resources.chemistry.solution import FUNCTIONS
from gym_runtime.environment import catalogue
from gym_runtime.environment.isolated import verify_isolated
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.errors import AssetMissing, ResourceError, TaskError
from resources.ether0.molecules import CAFFEINE, reward
from resources.judging import judge, nemo_gym_rows, row

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


@pytest.mark.parametrize(
    ("function", "information"),
    [
        ("formula_eval", CAFFEINE),
        ("functional_group_eval", "('C2H6O', ['alcohol'])"),
        ("valid_mol_eval", "Cc1ccc"),
        ("sol_eval", "('scaffold', 'c1ccccc1', -2.0, 'up')"),
    ],
)
async def test_a_row_that_needs_the_filters_is_refused_without_them(function: str, information: str) -> None:
    environment = catalogue.environment("ether0")
    task = row(verifier_metadata={"solution": f"{function}!:!{information}!:!kind"})
    assert environment.resource.task(task) is not None  # the row itself is a good one
    said = r"rings\.bloom .* gym-runtime prepare --assets ether0, or set GYM_ETHER0_FILTERS to"
    with pytest.raises(AssetMissing, match=said):
        await environment.resource.open(task)


@pytest.mark.usefixtures("filters")
@pytest.mark.parametrize(
    ("information", "answer", "wanted"),
    [
        ("Cc1ccc", "Cc1ccccc1", 1.0),
        ("Cc1ccc", "cc1", 1.0),
        ("Cc1ccc", "CCC", 0.0),  # does not go on as begun
        ("C", "Cc1ccccc1.[Na+]", 1.0),
        ("C", "Cc1ccccc1.[Na+].[Cl-]", 0.0),  # one counter-ion too many
        ("C", "Cc1ccccc1.CCCCCC", 0.0),  # too large for a counter-ion
        ("C", "CNNNNN", 0.0),  # nobody has seen the like
        ("C", "C1CCCCCCCC1", 0.0),  # nor this ring
    ],
)
async def test_with_the_filters_a_molecule_must_be_plausible(
    information: str, answer: str, wanted: float
) -> None:
    assert await reward("valid_mol_eval", information, answer) == wanted


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.usefixtures("filters")
async def test_functional_groups_are_those_of_exmol() -> None:
    for groups, answer, wanted in [
        ("['Aromatic']", "Cc1ccccc1", 1.0),
        ("[]", "Cc1ccccc1", 1.0),
        ("['aromatic', 'nitro']", "Cc1ccccc1", 0.0),
        ("[]", "C=CC=CC=CC", 0.0),
    ]:
        assert await reward("functional_group_eval", f"('C7H8', {groups})", answer) == wanted, groups
    with pytest.raises(ResourceError, match="how soluble it is"):
        await reward("sol_eval", "('groups', ['aromatic'], -2.0, 'up')", "Cc1ccccc1")
    assert await reward("sol_eval", "('groups', ['nitro'], -2.0, 'up')", "Cc1ccccc1") == 0.0


def test_every_function_of_the_rows_is_there() -> None:
    from gym_resources.chemistry.evaluation import EVALUATIONS

    assert set(EVALUATIONS) == set(FUNCTIONS)


@pytest.mark.parametrize("solution", ["", "str_eval", "str_eval!:!CCO", "eval!:!CCO!:!kind"])
def test_a_solution_names_a_function(solution: str) -> None:
    with pytest.raises(TaskError, match="must be function!:!information!:!type"):
        catalogue.environment("ether0").resource.task(row(verifier_metadata={"solution": solution}))


@pytest.mark.parametrize(
    ("function", "information"),
    [
        ("product_eval", "CCO"),
        ("product_eval", "CCO.O"),
        ("product_eval", "nothing"),
        ("formula_eval", "nothing"),
        ("rxn_forward", "nothing"),
        ("functional_group_eval", "C2H6O"),
        ("sol_eval", "('smell', 'CCO', 1.0, 'up')"),
    ],
)
@pytest.mark.usefixtures("filters")
async def test_a_row_that_cannot_be_read_is_a_failure(function: str, information: str) -> None:
    with pytest.raises(TaskError, match=r"nothing|C2H6O|smell|no fragment of 4"):
        await reward(function, information, "CCO")


def ideals() -> Iterator[tuple[str, str, bytes]]:
    for fields in map(json.loads, nemo_gym_rows("ether0")):
        metadata = fields["verifier_metadata"]
        yield metadata["solution"].split("!:!")[0], metadata["ideal"], json.dumps(fields).encode()


@pytest.mark.usefixtures("filters")
async def test_rows_in_nemo_gyms_format_can_be_judged() -> None:
    for function, ideal, task in ideals():
        if function == "formula_eval":
            assert (await judge("ether0", task, f"<answer>{ideal}</answer>")).reward == 1.0
        elif function == "str_eval":  # there the ideal is not always the option that is closest
            wanted = json.loads(task)["verifier_metadata"]["solution"].split("!:!")[1]
            assert (await judge("ether0", task, f"<answer>{wanted}</answer>")).reward == 1.0
        assert (await judge("ether0", task, "<answer>P</answer>")).reward == 0.0


@pytest.mark.slow
async def test_it_is_judged_in_a_process() -> None:
    source = str(catalogue.environment("ether0").source)
    task = row(verifier_metadata={"solution": "product_eval!:!CCOC(C)=O!:!kind"})
    for smiles, wanted in (("CC(=O)OCC", 1.0), ("C" * 4000 + "(", 0.0)):
        response = make_response(f"<answer>{smiles}</answer>")
        verdict = await verify_isolated(source, task, response, 30)
        assert isinstance(verdict, Verdict)
        assert verdict.reward == wanted
        # As NeMo Gym's result rows say.
        said = {name: verdict.fields[name] for name in ("eval_function", "problem_type")}
        assert said == {"eval_function": "product_eval", "problem_type": "kind"}
