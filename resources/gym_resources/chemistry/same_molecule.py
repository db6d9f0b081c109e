"""Whether two SMILES stand for the same molecule. RDKit is imported when it is asked."""

from __future__ import annotations


def same_molecule(answer: str, expected: str) -> bool:
    """Whether both are molecules, and the same one, stereochemistry included.

    RDKit takes what follows a space for a molecule's name; an answer such as ``CCO or CCN`` is no molecule.
    """
    from gym_resources.chemistry.molecules import molecule, same

    one, other = molecule(answer), molecule(expected)
    return len(answer.split()) == 1 and one is not None and other is not None and same(one, other)
