"""Answers in molecules, and what can be told of them."""

from __future__ import annotations

import time

import pytest
from gym_resources.ether0 import extract
from gym_runtime.errors import ResourceError
from resources.ether0.molecules import CAFFEINE, reward
from resources.judging import judge, row

pytestmark = pytest.mark.anyio


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
    for items, expected in (
        (["<answer>CCO</answer>", "That is it."], 1.0),
        (["<answer>C", "CO</answer>"], 0.0),
        (["<answer>", "CCO</answer>"], 1.0),
        ([r"\boxed{CCO}", "Answer: C"], 1.0),
        ([], 0.0),
    ):
        assert (await judge("ether0", task, *items)).reward == expected


@pytest.mark.parametrize("choices", [["CCO", "CCC", "COC"], {"A": "CCO", "B": "CCC", "c": "COC"}])
@pytest.mark.parametrize(
    ("answer", "right"), [("B", True), ("b", True), ("A", False), ("C", False), ("CCC", True), ("D", False)]
)
async def test_a_letter_stands_for_a_choice(choices: object, answer: str, right: bool) -> None:
    solution = "str_eval!:!CCC!:!kind"
    task = row(verifier_metadata={"solution": solution, "choices": choices})
    verdict = await judge("ether0", task, f"<answer>{answer}</answer>")
    assert (verdict.reward, verdict.fields["extracted_answer"]) == (float(right), answer)
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
