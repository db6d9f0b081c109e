"""Whether an answer is right, by the evaluation function that its row names.

``EVALUATIONS`` holds them by name: each takes the answer and the row's information for it. An evaluation that
needs a service on the network raises `ResourceError`, and only if all else about the answer is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import cast

from gym_runtime import ResourceError, TaskError

from gym_resources.chemistry.compound_names import same_name, same_reaction
from gym_resources.chemistry.molecules import Molecule, formula, groups, largest, molecule, same, similarity
from gym_resources.chemistry.plausibility import plausible
from gym_resources.chemistry.solution import Constraint, FormulaAndGroups, information

SIMILAR_ENOUGH = 0.7
OTHER_SIZE = 0.2  # of the larger one's heavy atoms; beyond this difference, similar fingerprints mean nothing

_SMILES = r"[a-z0-9@+\-\[\]()\\/%=#$.]"
_REACTION = re.compile(rf"[^J]{_SMILES}{{6,}}>{_SMILES}*>", re.IGNORECASE)


def right_text(answer: str, expected: str) -> bool:
    return same_name(answer, expected)


def right_name(answer: str, expected: str) -> bool:
    return same_reaction(answer, expected)


def right_product(answer: str, expected: str) -> bool:
    """The largest molecule is the expected one."""
    found = largest(answer)
    wanted = largest(expected)
    if wanted is None:
        raise TaskError(f"the expected molecule {expected!r} cannot be read", stage="verify")
    return found is not None and same(found, wanted)


def right_formula(answer: str, expected: str) -> bool:
    """A plausible molecule of the expected one's formula, and similar to it."""
    found, wanted = molecule(answer), _reference(expected)
    return (
        found is not None
        and formula(found) == formula(wanted)
        and similarity(found, wanted) >= SIMILAR_ENOUGH
        and plausible(found, wanted)
    )


def right_groups(answer: str, expected: str) -> bool:
    """A plausible molecule of a formula and with functional groups: ``('C2H6O', ['alcohol'])``."""
    wanted, names = information(expected, FormulaAndGroups)
    found = molecule(answer)
    return (
        found is not None
        and formula(found) == wanted
        and {name.lower() for name in names} <= groups(found)
        and plausible(found)
    )


def right_completion(answer: str, beginning: str) -> bool:
    """A plausible molecule whose SMILES begins so; the answer is all of it, or the rest."""
    for smiles in (answer, beginning + answer) if answer else ():
        if smiles.startswith(beginning):
            found = molecule(smiles)
            if found is not None:
                return plausible(found)
    return False


def right_molecule(answer: str, _: str) -> bool:
    """Any molecule."""
    return bool(answer) and molecule(answer) is not None


def right_solubility(answer: str, expected: str) -> bool:
    """A plausible molecule under a constraint; only a service can check its solubility."""
    kind, given, _, _ = information(expected, Constraint)
    found = molecule(answer)
    if found is None or "." in answer or not _meets(found, kind, given):
        return False
    reference = None if kind == "groups" else _reference(cast("str", given))
    return plausible(found, reference) and _ask("how soluble it is")


def right_synthesis(answer: str, expected: str) -> bool:
    """Reactants and reagents, ``A.B>C>`` or with products, none of which is the target molecule; only a
    service can check that they can be bought and react to it.
    """
    wanted = _reference(expected)
    if "." not in answer or answer.count(">") > 2 or not _REACTION.match(answer):
        return False
    reactants, reagents, products = (side.split(".") for side in answer.split(">"))
    used = [molecule(smiles) for smiles in (*reactants, *(name for name in reagents if name.strip()))]
    made = [molecule(smiles) for smiles in products if smiles.strip()]
    if None in used or None in made or _among(wanted, used) or (made and not _among(wanted, made)):
        return False
    return _ask("whether its reactants can be bought, and what they react to")


EVALUATIONS: Mapping[str, Callable[[str, str], bool]] = {
    "str_eval": right_text,
    "should_not_answer_eval": right_text,
    "rxn_eval": right_name,
    "product_eval": right_product,
    "caption_eval": right_product,
    "formula_eval": right_formula,
    "functional_group_eval": right_groups,
    "valid_mol_eval": right_completion,
    "should_answer_eval": right_molecule,
    "sol_eval": right_solubility,
    "rxn_forward": right_synthesis,
}


def _meets(found: Molecule, kind: str, given: str | list[str]) -> bool:
    if kind == "groups":
        return bool({name.lower() for name in given} & groups(found))
    reference = _reference(cast("str", given))
    if kind == "scaffold":
        return found.HasSubstructMatch(reference)
    sizes = sorted(mol.GetNumHeavyAtoms() for mol in (found, reference))
    alike = sizes[1] == 0 or (sizes[1] - sizes[0]) / sizes[1] <= OTHER_SIZE
    return alike and similarity(found, reference) >= SIMILAR_ENOUGH


def _among(wanted: Molecule, molecules: list[Molecule | None]) -> bool:
    return any(mol is not None and same(mol, wanted) for mol in molecules)


def _reference(smiles: str) -> Molecule:
    found = molecule(smiles)
    if found is None:
        raise TaskError(f"the expected molecule {smiles!r} cannot be read", stage="verify")
    return found


def _ask(what: str) -> bool:
    raise ResourceError(
        f"the answer is right as far as can be told here; {what}, only the benchmark's service on the "
        "network tells, which this environment does not ask: leave such rows out",
        stage="verify",
    )
