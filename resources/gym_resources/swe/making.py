"""Makes small Python repositories with a bug, an issue that reports it, the patch that repairs it, and tests.

A repository has three modules, each from a family of modules in which names and numbers vary, and one of them
has a bug of its family. What the tests expect is what the repaired modules return. The same random numbers
make the same repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

from gym_resources.swe.bug_families import FAMILIES, Family
from gym_resources.swe.patches import difference

MODULES = 3
CALLS = 6


class Repository(msgspec.Struct, frozen=True):
    """A repository with a bug.

    Attributes:
        files: with the bug.
        fixed: without it.
        module: the path of the module that has it.
        call: an example of a call that goes wrong, as an expression; ``returned`` is what it returns.
        checks: the calls that decide, with what they return, by their names.
    """

    name: str
    files: dict[str, str]
    fixed: dict[str, str]
    module: str
    report: str
    call: str
    returned: Any
    checks: dict[str, dict[str, Any]]
    fail_to_pass: list[str]
    pass_to_pass: list[str]

    @property
    def patch(self) -> str:
        """The perfect patch."""
        return difference(self.files, self.fixed)


def repositories(count: int, seed: int) -> Iterator[Repository]:
    """Repositories with different bugs as far as there are any."""
    random = Random(seed)
    for number in range(count):
        found = None
        while found is None:  # a bug that no call shows
            found = _repository(random, number)
        yield found


def _repository(random: Random, number: int) -> Repository | None:
    package = random.choice(("depot", "harbour", "kiosk", "ledgers", "orchard", "stopwatch", "workshop"))
    chosen = random.sample(FAMILIES, MODULES)
    fixed = {
        "README.md": f"# {package}\n\nSmall things that we need every day.\n",
        f"{package}/__init__.py": "",
    }
    places: list[str] = []
    for family in chosen:
        name = f"{package}/{family.function}s.py"
        fixed[name] = family.source.replace("NUMBER", str(random.randint(*family.number)))
        places.append(name)
    broken, bug = places[0], random.choice(chosen[0].bugs)
    value = chosen[0].source.replace("NUMBER", "\0")
    number_text = _number(fixed[broken], value)
    right, wrong = (text.replace("NUMBER", number_text) for text in (bug.right, bug.wrong))
    files = {**fixed, broken: fixed[broken].replace(right, wrong, 1)}
    checks: dict[str, dict[str, Any]] = {}
    failing: list[str] = []
    for family, place in zip(chosen, places, strict=True):
        module = place.removesuffix(".py").replace("/", ".")
        for turn in range(CALLS * (2 if place == broken else 1)):
            arguments = family.arguments(random)
            returned = _called(fixed[place], family.function, arguments)
            name = f"test_{family.function}_{turn}"
            checks[name] = {"call": f"{module}.{family.function}", "arguments": arguments, "value": returned}
            if place == broken and _called(files[place], family.function, arguments) != returned:
                failing.append(name)
    if not failing or len(failing) == CALLS * 2:
        return None
    example = checks[failing[0]]
    shown = f"{chosen[0].function}({', '.join(map(repr, example['arguments']))})"
    fixed_tests = _visible_tests(package, chosen, places, checks, failing)
    return Repository(
        name=f"{package}-{number}",
        files={**files, **fixed_tests},
        fixed={**fixed, **fixed_tests},
        module=broken,
        report=bug.report,
        call=shown,
        returned=_called(files[broken], chosen[0].function, example["arguments"]),
        checks=checks,
        fail_to_pass=failing,
        pass_to_pass=[name for name in checks if name not in failing],
    )


def _number(text: str, pattern: str) -> str:
    """The number that stands in a text where its pattern has a NUL."""
    before = pattern.partition("\0")[0]
    digits = text[len(before) :]
    return digits[: len(digits) - len(digits.lstrip("0123456789"))]


def _called(source: str, function: str, arguments: list[Any]) -> Any:
    """What a function of one of the modules above returns; its code is this module's own."""
    module: dict[str, Any] = {}
    exec(source, module)
    try:
        return msgspec.to_builtins(module[function](*arguments))
    except Exception as error:  # noqa: BLE001 - of a module with a bug; it counts as another result
        return {"raised": type(error).__name__}


def _visible_tests(
    package: str,
    chosen: list[Family],
    places: list[str],
    checks: dict[str, dict[str, Any]],
    failing: list[str],
) -> dict[str, str]:
    """The repository's own tests, which all pass, since they overlook the bug."""
    lines = ["import unittest", ""]
    for family, place in zip(chosen, places, strict=True):
        module = place.removesuffix(".py").replace("/", ".")
        lines.append(f"from {module} import {family.function}")
    lines += ["", "", "class Tests(unittest.TestCase):"]
    for family in chosen:
        known = [
            name for name in checks if name.startswith(f"test_{family.function}_") and name not in failing
        ]
        lines.append(f"    def test_{family.function}(self):")
        for name in known[:2]:
            arguments = ", ".join(map(repr, checks[name]["arguments"]))
            lines.append(
                f"        self.assertEqual({family.function}({arguments}), {checks[name]['value']!r})"
            )
        lines.append("")
    lines += ["", 'if __name__ == "__main__":', "    unittest.main()", ""]
    return {f"tests/test_{package}.py": "\n".join(lines)}
