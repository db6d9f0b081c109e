"""Molecules as RDKit sees them: read, compared, and taken apart. A text that is not a molecule is read as
None.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from rdkit import Chem, DataStructs, rdBase
from rdkit.Chem import rdFingerprintGenerator, rdMolDescriptors

from gym_resources.chemistry.solution import fragments

Molecule = Chem.Mol

RADIUS = 2


def molecule(smiles: str) -> Molecule | None:
    """The molecule that a SMILES stands for; the empty text is the empty molecule."""
    if not smiles.isascii():
        return None
    with rdBase.BlockLogs():
        return Chem.MolFromSmiles(smiles)


def largest(smiles: str) -> Molecule | None:
    """The molecule with the most atoms of those that a SMILES separates by dots.

    Parts that are not molecules, or are shorter than `SHORTEST` characters, are left out.
    """
    found = [molecule(part) for part in fragments(smiles)]
    return max((part for part in found if part is not None), key=size, default=None)


def size(mol: Molecule) -> int:
    """The number of its atoms, without implicit hydrogen."""
    return mol.GetNumAtoms()


def parts(mol: Molecule) -> list[Molecule]:
    """Its connected components, the largest first."""
    return sorted(cast("Any", Chem).GetMolFrags(mol, asMols=True), key=size, reverse=True)


def formula(mol: Molecule) -> str:
    """The sum formula in Hill order, with its charge."""
    return rdMolDescriptors.CalcMolFormula(mol)


def same(one: Molecule, other: Molecule) -> bool:
    """Whether two molecules are the same, stereochemistry included."""
    return Chem.MolToSmiles(one) == Chem.MolToSmiles(other)


def similarity(one: Molecule, other: Molecule) -> float:
    """The Tanimoto similarity of their Morgan fingerprints (radius 2, 2048 bits), from 0 to 1."""
    fingerprints = [_generator().GetFingerprint(mol) for mol in (one, other)]
    return DataStructs.TanimotoSimilarity(*fingerprints)


def environments(mol: Molecule) -> set[int]:
    """The surroundings of its atoms up to two bonds away, as the unfolded Morgan fingerprint's numbers."""
    return set(_generator().GetSparseCountFingerprint(mol).GetNonzeroElements())


def groups(mol: Molecule) -> set[str]:
    """The names of its functional groups, in lower case, as the library exmol detects them."""
    import exmol

    found: set[str] = exmol.get_functional_groups(mol, return_all=True)
    return {name.lower() for name in found}


def rings(mol: Molecule) -> set[str]:
    """Its ring systems, as SMILES: rings that share atoms or are joined by multiple bonds, with the atoms
    that these bonds attach.

    Source: Pat Walters, useful_rdkit_utils (MIT).
    """
    single = [
        bond.GetIdx()
        for bond in mol.GetBonds()
        if not bond.IsInRing() and bond.GetBondType() == Chem.BondType.SINGLE
    ]
    pieces = Chem.FragmentOnBonds(mol, single) if single else Chem.Mol(mol)
    Chem.SanitizeMol(pieces)
    return {_system(piece) for piece in parts(pieces) if piece.GetRingInfo().NumRings()}


def _system(piece: Molecule) -> str:
    from molbloom import canon

    for atom in piece.GetAtoms():
        if atom.GetAtomicNum() == 0:  # where a bond was cut
            atom.SetAtomicNum(1)
            atom.SetIsotope(0)
    piece = Chem.RemoveAllHs(piece)
    for bond in piece.GetBonds():
        ends = (bond.GetBeginAtom().GetDegree(), bond.GetEndAtom().GetDegree())
        if bond.GetBondType() == Chem.BondType.DOUBLE and 1 in ends:
            bond.SetStereo(cast("Any", Chem.BondStereo.STEREONONE))
    return canon(Chem.MolToSmiles(piece)) or ""


@cache
def _generator() -> Any:
    return rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS)
