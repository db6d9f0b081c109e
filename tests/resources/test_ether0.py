"""How chemistry answers are judged, with and without the filters of the benchmark's authors."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gym_resources.chemistry.solution import FUNCTIONS
from gym_resources.ether0 import extract
from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.isolated import verify_isolated
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import AssetMissing, ResourceError, TaskError, UsageError
from resources.judging import judge, nemo_gym_rows, row

pytestmark = pytest.mark.anyio

CAFFEINE = "CN1C=NC2=C1C(=O)N(C)C(=O)N2C"


@pytest.fixture(autouse=True)
def needed() -> None:
    try:
        requirements.require(catalogue.environment("ether0"))
    except UsageError as error:
        pytest.skip(error.message)


@pytest.fixture(autouse=True)
def no_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GYM_ETHER0_FILTERS", raising=False)


@pytest.fixture
def filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters that know benzene, and what occurs in toluene and in propane."""
    from gym_resources.chemistry import molecules
    from molbloom import CustomFilter

    known = [mol for mol in map(molecules.molecule, ("Cc1ccccc1", "CCC")) if mol is not None]
    seen = {
        "rings": molecules.rings(known[0]),
        "fingerprints": {str(place) for mol in known for place in molecules.environments(mol)},
    }
    for kind, names in seen.items():
        made = CustomFilter(8192, 100, kind)
        for name in names:
            made.add(name)
        made.save(str(tmp_path / f"{kind}.bloom"))
    monkeypatch.setenv("GYM_ETHER0_FILTERS", str(tmp_path))


async def reward(function: str, information: str, answer: str) -> float:
    task = row(verifier_metadata={"solution": f"{function}!:!{information}!:!kind"})
    return (await judge("ether0", task, f"<answer>{answer}</answer>")).reward


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>CCO</answer>", "CCO"),
        ("<|answer_start|> CCO <|answer_end|>", "CCO"),
        ("<answer>CCO<|answer_end|>", "CCO"),
        ("<answer>C</answer> no, <answer> CCO\n</answer>", "CCO"),
        (r"<answer>CCO</answer> or \boxed{C}", "CCO"),
        (r"<answer></answer> \boxed{CCO}", "CCO"),
        (r"<answer> </answer> \boxed{CCO}", "CCO"),
        (r"<answer>CCO</answer> <answer></answer>", "CCO"),
        (r"In <answer> goes: <answer>C</answer>, so \boxed{CCO}", "CCO"),
        (r"In <answer> goes: <answer>C</answer>.", None),
        (r"\boxed{C} or \boxed{CCO}", "CCO"),
        (r"\boxed{\text{CCO}}", r"\text{CCO}"),
        (r"\boxed{a{b{c}}}", "a{b{c}}"),
        (r"\boxed{CCO} \boxed{a{b{c{d}}}}", "CCO"),  # too deep
        (r"\boxed{CCO} \boxed{C", "CCO"),
        (r"\boxed {C}", None),
        ("Answer: A \nAnswer: B \nThat is it.", "B"),
        ("The Answer : c", "c"),
        ("Answer:\nC", "C"),
        (r"\boxed{} Answer: C", None),
        ("Answer: CCO", None),
        ("Answer: A or B", None),
        ("answer: A", None),
        ("**Answer:** A", None),
        ("The answer is CCO.", None),
        ("<answer>CCO", None),
        ("", None),
    ],
)
def test_the_answer_is_where_it_is_marked(text: str, answer: str | None) -> None:
    assert extract(text) == answer


def test_no_text_takes_long() -> None:
    texts = (
        r"\boxed{" * 140_000,
        r"\boxed{{" * 120_000,
        r"\boxed{" + "{{}}" * 250_000,
        "<answer>" * 125_000,
        "Answer:" * 140_000,
        "Answer: C" + " " * 1_000_000 + "x",
        "Answer: A\n" * 90_000,
    )
    start_s = time.process_time()
    for text in texts:
        extract(text)
    assert time.process_time() - start_s < len(texts) * 0.05


async def test_all_messages_are_read_one_below_the_other() -> None:
    task = row(verifier_metadata={"solution": "str_eval!:!CCO!:!kind"})
    for items, reward in (
        (["<answer>CCO</answer>", "That is it."], 1.0),
        (["<answer>C", "CO</answer>"], 0.0),
        (["<answer>", "CCO</answer>"], 1.0),
        ([r"\boxed{CCO}", "Answer: C"], 1.0),
        ([], 0.0),
    ):
        assert (await judge("ether0", task, *items)).reward == reward


@pytest.mark.parametrize("choices", [["CCO", "CCC", "COC"], {"A": "CCO", "B": "CCC", "c": "COC"}])
@pytest.mark.parametrize(
    ("answer", "right"), [("B", True), ("b", True), ("A", False), ("C", False), ("CCC", True), ("D", False)]
)
async def test_a_letter_stands_for_a_choice(choices: object, answer: str, right: bool) -> None:
    solution = "str_eval!:!CCC!:!kind"
    task = row(verifier_metadata={"solution": solution, "choices": choices})
    verdict = await judge("ether0", task, f"<answer>{answer}</answer>")
    assert (verdict.reward, verdict.fields) == (float(right), {"extracted_answer": answer})
    plain = row(verifier_metadata={"solution": solution, "choices": None})
    assert (await judge("ether0", plain, "<answer>B</answer>")).reward == 0.0


JUDGED: list[tuple[str, str, str, float]] = [
    ("str_eval", "CCO", "cco ", 1.0),
    ("str_eval", "CCO", "OCC", 0.0),
    ("str_eval", "2,3-dihydro-1(H)-indole", "2,3-dihydro-1{H}-indole", 1.0),
    ("str_eval", "bicyclo[2.2.1.0^{2,6}]heptane", "bicyclo[2.2.1.0(2,6)]heptane", 1.0),
    ("str_eval", "(5S,8R)-oxane", "(5~S~,8~R~)-oxane", 1.0),
    ("should_not_answer_eval", "none", "none", 1.0),
    ("rxn_eval", "Diels-Alder reaction", "diels alder reaction", 1.0),
    ("rxn_eval", "Diels-Alder reaction", "DielsAlderReaction", 1.0),
    ("rxn_eval", "Diels-Alder reaction", "Diels\N{EN DASH}Alder reaction", 1.0),
    ("rxn_eval", "Diels-Alder reaction", "Diels-Older reaction", 0.0),
    ("product_eval", "CCOC(C)=O", "CC(=O)OCC", 1.0),
    ("product_eval", "CCOC(C)=O", "CC(=O)OCC.[Na+].[Cl-]", 1.0),
    ("product_eval", "CCOC(C)=O", "CC(=O)OC", 0.0),
    ("product_eval", "CCOC(C)=O.CCO", "CC(=O)OCC", 1.0),
    ("product_eval", "CCCO.CCO", "OCCC", 1.0),  # fragments of three characters are not looked at
    ("product_eval", "CCCO", "CCO", 0.0),
    ("product_eval", "C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O", 0.0),
    ("product_eval", "CCOC(C)=O", "ethyl acetate", 0.0),
    ("product_eval", "CCOC(C)=O", "", 0.0),
    ("caption_eval", "Oc1ccccc1", "C1=CC=C(O)C=C1", 1.0),
    ("formula_eval", CAFFEINE, "Cn1cnc2c1c(=O)n(C)c(=O)n2C", 1.0),
    ("formula_eval", CAFFEINE, "Cn1cnc2c1c(=O)n(CC)c(=O)n2C", 0.0),  # another formula
    ("formula_eval", "CCCCO", "CCOCC", 0.0),  # the formula, and not like it
    ("formula_eval", CAFFEINE, "caffeine", 0.0),
    ("formula_eval", CAFFEINE, "", 0.0),
    ("functional_group_eval", "('C2H6O', ['alcohol'])", "CCCO", 0.0),
    ("functional_group_eval", "('C2H6O', ['alcohol'])", "C(", 0.0),
    ("valid_mol_eval", "c1ccccc1", "applesauce", 0.0),
    ("valid_mol_eval", "c1ccccc1", "", 0.0),
    ("should_answer_eval", "", "CCO", 1.0),
    ("should_answer_eval", "", "C(C)(C)(C)(C)C", 0.0),  # five bonds
    ("should_answer_eval", "", "", 0.0),
    ("sol_eval", "('scaffold', 'c1ccccc1', -2.0, 'increase')", "CCO", 0.0),
    ("sol_eval", "('scaffold', 'c1ccccc1', -2.0, 'increase')", "Oc1ccccc1.O", 0.0),
    ("sol_eval", "('tanimoto', 'Cc1ccccc1', -2.0, 'increase')", "CCCCCCCCCC", 0.0),
    ("rxn_forward", "CCOC(C)=O", "CCO", 0.0),
    ("rxn_forward", "CCOC(C)=O", "CCO.CC(=O)O", 0.0),
    ("rxn_forward", "CCOC(C)=O", "CCO.CC(=O)O>O", 0.0),
    ("rxn_forward", "CCOC(C)=O", "CCO.CC(=O)O>>>", 0.0),
    ("rxn_forward", "CCOC(C)=O", "CCO.CC(=O)X>>", 0.0),
    ("rxn_forward", "CCOC(C)=O", "CCO.CC(=O)O>X>", 0.0),
    ("rxn_forward", "CCOC(C)=O", "CCO.CC(=O)O>>CCCC", 0.0),
    ("rxn_forward", "CCOC(C)=O", "CCOC(C)=O.O>>", 0.0),
    ("rxn_forward", "CCOC(C)=O", "CCO.CC(=O)O>CC(=O)OCC>", 0.0),
]  # fmt: skip


@pytest.mark.usefixtures("filters")
@pytest.mark.parametrize(("function", "information", "answer", "wanted"), JUDGED)
async def test_what_can_be_told_is_told(function: str, information: str, answer: str, wanted: float) -> None:
    assert await reward(function, information, answer) == wanted


@pytest.mark.usefixtures("filters")
@pytest.mark.parametrize(
    ("function", "information", "answer", "said"),
    [
        ("sol_eval", "('scaffold', 'c1ccccc1', -2.0, 'up')", "c1ccccc1", "how soluble it is, only"),
        ("rxn_forward", "CCOC(C)=O", "CCO.CC(=O)O>>", "whether its reactants can be bought"),
        ("rxn_forward", "CCOC(C)=O", "CCO.CC(=O)O>S>CC(=O)OCC.O", "whether its reactants can be bought"),
    ],
)
async def test_what_cannot_be_told_is_a_failure_and_no_reward(
    function: str, information: str, answer: str, said: str
) -> None:
    with pytest.raises(ResourceError, match=said):
        await reward(function, information, answer)


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
        assert (await verify_isolated(source, task, response, 30)).reward == wanted
