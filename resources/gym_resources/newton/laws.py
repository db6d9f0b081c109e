"""The laws: twelve modules, three versions of each, three difficulties of each version.

A law is a line of Python over the module's parameters, so that what is computed is what the judge is shown.
The texts are this module's own; no text of a model or of a row is ever evaluated here.
Source: the laws of NewtonBench (arXiv 2510.07172, MIT).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from types import CodeType
from typing import Literal

import msgspec

Difficulty = Literal["easy", "medium", "hard"]
Version = Literal["v0", "v1", "v2"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")
VERSIONS: tuple[Version, ...] = ("v0", "v1", "v2")
_NAMES = "e acos asin atan cos sin tan degrees radians exp expm1 log sqrt"
FUNCTIONS = {name: getattr(math, name) for name in _NAMES.split()}


class LawTable(msgspec.Struct, frozen=True):
    """A module's laws.

    Attributes:
        parameters: of the law, in the order of ``discovered_law``.
        constants: the names that its texts use besides.
        texts: by version, the easy, the medium and the hard one.
        positive: a value that is not above 0 counts as undefined.
    """

    parameters: tuple[str, ...]
    constants: dict[str, float]
    texts: dict[Version, tuple[str, str, str]]
    positive: bool = False


class Law:
    """One law as a function: 0 where an argument is not above 0, NaN where it is undefined."""

    def __init__(self, table: LawTable, text: str) -> None:
        self.text = text
        self.parameters = table.parameters
        self.constants = table.constants
        self._positive = table.positive
        code: CodeType = compile(f"lambda {', '.join(table.parameters)}: {text}", "<law>", "eval")
        self._function: Callable[..., float | complex] = eval(code, {**FUNCTIONS, **table.constants})

    def __call__(self, *arguments: float) -> float:
        if any(argument <= 0 for argument in arguments):
            return 0.0
        try:
            value = self._function(*arguments)
        except (ArithmeticError, ValueError):
            return math.nan
        if isinstance(value, complex) or not math.isfinite(value) or (self._positive and value <= 0):
            return math.nan
        return value


@cache
def law(module: str, difficulty: Difficulty, version: Version) -> Law:
    """The law of a module."""
    table = LAWS[module]
    return Law(table, table.texts[version][DIFFICULTIES.index(difficulty)])


LAWS: dict[str, LawTable] = {
    "m0_gravity": LawTable(
        ("mass1", "mass2", "distance"),
        {"C": 6.674e-5},
        {
            "v0": (
                "C * mass1 * mass2 / distance**1.5",
                "C * (mass1 * mass2) ** 2 / distance**1.5",
                "C * (mass1 + mass2) ** 2 / distance**1.5",
            ),
            "v1": ("C * mass1 / distance**2", "C * mass1 / distance**2.6", "C * mass1**1.3 / distance**2.6"),
            "v2": (
                "C * mass1**2 * mass2**2 / distance**2",
                "C * mass1**2 * mass2**2 * distance**2",
                "C * (mass1**2 + mass2**2) * distance**2",
            ),
        },
    ),
    "m1_coulomb_force": LawTable(
        ("q1", "q2", "distance"),
        {"C": 2.0},
        {
            "v0": (
                "C * q1 * q2 / distance**3",
                "C * q1 * q2 * (q1 + q2) / distance**2",
                "C * q1 * q2 * (q1 + q2) / distance**e",
            ),
            "v1": (
                "C * (q1 * q2) ** 3 / distance**2",
                "C * (q1 + q2) ** 3 / distance**2",
                "C * q2**2 * (q1 + q2) ** 3 / distance**2",
            ),
            "v2": (
                "C * q1**3 * q2 / distance**2",
                "C * q1**3 * q2**2 / distance**2.5",
                "C * q1**3 * q2**2 / distance**e",
            ),
        },
    ),
    "m2_magnetic_force": LawTable(
        ("current1", "current2", "distance"),
        {"C": 0.0478},
        {
            "v0": (
                "C * current1 * current2 / distance**3",
                "C * (current1 * current2) ** 1.5 / distance**3",
                "C * (current1 + current2) ** 1.5 / distance**3",
            ),
            "v1": (
                "C * (current1 * current2) ** 2 / distance",
                "C * (current1 * current2) ** 2 * distance",
                "C * (current1 - current2) ** 2 * distance",
            ),
            "v2": (
                "C * current2 / distance",
                "C * current2 / distance**3.8",
                "C * current2**0.9 / distance**3.8",
            ),
        },
    ),
    "m3_fourier_law": LawTable(
        ("k", "A", "delta_T", "d"),
        {},
        {
            "v0": (
                "k * A * delta_T / d**2",
                "k * A**0.5 * delta_T / d**2",
                "k * A**0.5 * delta_T**1.3 / d**2",
            ),
            "v1": (
                "k * A**0.5 * delta_T / d",
                "k * A**0.5 * delta_T**2.7 / d",
                "k * A**0.5 * delta_T**2.7 / d ** (3 / 7)",
            ),
            "v2": (
                "k * A * delta_T**2 / d",
                "k * delta_T**2 / (d * A**3.4)",
                "k * delta_T**2 / (sqrt(d) * A**3.4)",
            ),
        },
    ),
    "m4_snell_law": LawTable(
        ("n1", "n2", "angle1"),
        {},
        {
            "v0": (
                "degrees(acos(n1 * sin(radians(angle1)) / n2))",
                "degrees(acos(n1 * cos(radians(angle1)) / n2))",
                "degrees(acos(n1**2 * cos(radians(angle1)) / n2))",
            ),
            "v1": (
                "degrees(asin(n2 * sin(radians(angle1)) / n1))",
                "degrees(acos(n2 * sin(radians(angle1)) / n1))",
                "degrees(acos(n2 * sin(radians(angle1)) / n1**2.5))",
            ),
            "v2": (
                "degrees(atan(n1 * sin(radians(angle1)) / n2))",
                "degrees(atan(n1 * tan(radians(angle1)) / n2))",
                "degrees(atan((n1 / n2) ** 2 * tan(radians(angle1))))",
            ),
        },
    ),
    "m5_radioactive_decay": LawTable(
        ("N0", "lambda_constant", "t"),
        {},
        {
            "v0": (
                "N0 * exp(-lambda_constant * t**1.5)",
                "N0**1.2 * exp(-lambda_constant * t**1.5)",
                "N0**1.2 * exp(-(lambda_constant**e) * t**1.5)",
            ),
            "v1": (
                "N0 * exp(-(lambda_constant**1.5) * t)",
                "N0**1.4 * exp(-(lambda_constant**1.5) * t)",
                "N0**1.4 * exp(-(lambda_constant**1.5) * t**e)",
            ),
            "v2": (
                "N0 * exp(-((lambda_constant * t) ** 1.5))",
                "N0**1.8 * exp(-((lambda_constant * t) ** 1.5))",
                "N0**1.8 * exp(-((lambda_constant * t) ** (e + 1.5)))",
            ),
        },
    ),
    "m6_underdamped_harmonic": LawTable(
        ("k", "m", "b"),
        {},
        {
            "v0": (
                "sqrt(k / m - b / (2 * m))",
                "sqrt(k / m - b / (2 * m**2))",
                "(k / m - b / (2 * m**2)) ** 1.5",
            ),
            "v1": (
                "(k / m - (b / (2 * m)) ** 2) ** 2",
                "(k / m**2 - (b / (2 * m)) ** 2) ** 2",
                "(k * m**2 - (b / (2 * m)) ** 2) ** 2",
            ),
            "v2": (
                "k / m - (b / (2 * m)) ** 2",
                "k / m**1.3 - (b / (2 * m)) ** 2",
                "k / m**1.3 - (b / (2 * m)) ** 0.7",
            ),
        },
    ),
    "m7_malus_law": LawTable(
        ("I_0", "theta"),
        {},
        {
            "v0": (
                "I_0 * (sin(theta) + cos(theta)) ** 2",
                "I_0 * (2 * sin(theta) + cos(theta)) ** 2",
                "I_0 * (2 * sin(theta) + 1.5 * cos(theta)) ** 2",
            ),
            "v1": (
                "I_0 * tan(theta) ** 2",
                "I_0 * sin(theta) ** 2 / cos(theta) ** 3",
                "I_0 * (sin(theta) ** 2 / cos(theta) ** 3) ** e",
            ),
            "v2": (
                "I_0 / tan(theta) ** 2",
                "I_0 / tan(theta) ** e",
                "I_0 * (sin(theta) ** 2 / cos(theta)) ** e",
            ),
        },
    ),
    "m8_sound_speed": LawTable(
        ("gamma", "T", "M"),
        {"C": 351.6},
        {
            "v0": (
                "sqrt(gamma * C * T**2 / M)",
                "sqrt(gamma * C * T**2 / M**1.5)",
                "sqrt(exp(gamma) * C * T**2 / M**1.5)",
            ),
            "v1": ("gamma * C * T / M", "gamma * C * T / M ** (1 / 3)", "log(gamma) * C * T / M ** (1 / 3)"),
            "v2": ("sqrt(C * T / M)", "sqrt(C * T * M**1.5)", "(C * T * M**1.5) ** -2.8"),
        },
    ),
    "m9_hooke_law": LawTable(
        ("x",),
        {"k": 231.141, "C2": 1241.9012, "C3": 12.578},
        {
            "v0": ("2 * k * x**2", "2 * k * x**2 + C2 * x", "2 * k * x**2 + C2 * x + C3 / sqrt(x)"),
            "v1": (
                "2 * k * sqrt(x)",
                "2 * k * sqrt(x) + C2 * x**3",
                "2 * k * sqrt(x) + C2 * x**3 + C3 / x**0.3",
            ),
            "v2": (
                "2 * k * x**3.4",
                "2 * k * x**3.4 + C2 * sqrt(x)",
                "2 * k * x**3.4 + C2 * sqrt(x) + C3 / x ** (10 / 3)",
            ),
        },
    ),
    "m10_be_distribution": LawTable(
        ("omega", "T"),
        {"C": 1.0513e-14},
        {
            "v0": (
                "1 / (exp(C * omega / T) + 1)",
                "1 / (exp(C * omega**1.5 / T) + 1)",
                "1 / (exp(C * omega**1.5 / T**2) + 1)",
            ),
            # `expm1(x)` is `exp(x) - 1` without the digits that are lost where x is small, as it is here.
            "v1": (
                "1 / expm1(C * sqrt(omega) / T)",
                "1 / expm1(C * sqrt(omega) * T)",
                "1 / expm1(C * sqrt(omega) * T**2.3)",
            ),
            "v2": (
                "1 / expm1(C * omega / T**3)",
                "1 / expm1(C * omega**1.5 / T**3)",
                "1 / (-log(C * omega**1.5 / T**3) - 1)",
            ),
        },
        positive=True,
    ),
    "m11_heat_transfer": LawTable(
        ("m", "c", "delta_T"),
        {},
        {
            "v0": ("m * c * delta_T**2.5", "c / (m * delta_T**2.5)", "c / (m ** (e + 1) * delta_T**2.5)"),
            "v1": ("m**2.5 * c * delta_T", "c / (m**2.5 * delta_T)", "c / (m**2.5 * delta_T ** (e + 1))"),
            "v2": ("(m * delta_T) ** 2.5 * c", "c / (m**2.5 * delta_T**2.5)", "c / (m * delta_T) ** (e + 1)"),
        },
    ),
}
