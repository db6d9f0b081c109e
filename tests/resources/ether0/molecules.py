"""Answers in molecules."""

from __future__ import annotations

from resources.judging import judge, row

CAFFEINE = "CN1C=NC2=C1C(=O)N(C)C(=O)N2C"


async def reward(function: str, information: str, answer: str) -> float:
    task = row(verifier_metadata={"solution": f"{function}!:!{information}!:!kind"})
    return (await judge("ether0", task, f"<answer>{answer}</answer>")).reward
