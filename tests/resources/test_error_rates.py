"""The rates of errors that are kept beside the modules are those of the verifiers as they are.

A few environments are measured again, other ones each day; ``--soak`` measures all of them.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import msgspec
import pytest
from gym_runtime.environment import catalogue, requirements, with_settings
from gym_runtime.errors import UsageError
from gym_testing.audit import kept_rates
from gym_testing.audit.artifact import VERSION
from gym_testing.audit.measuring import Auditor, Plan
from gym_view.badges import badge
from resources.judging import usable

NAMES = catalogue.names("environments")
A_DAY = 2
PLAN = Plan(seconds=8.0, repeats=1, elsewhere=False)
LONG = ("bigcodebench", "competitive_coding_challenges", "scicode")
"""To run their programs takes minutes."""
UNMEASURED = ("aviary_remote", "math_formal_lean", "minif2f", "mobench", "proofnet", "putnam_bench", "tales")
"""They need a server, Lean, or a Java for each reply."""
COMPARED = ("gold_fails", "nop", "false_positive", "partial", "false_negative")


def of_today() -> list[str]:
    first = datetime.date.today().toordinal() * A_DAY
    return [NAMES[place % len(NAMES)] for place in range(first, first + A_DAY)]


TODAY = of_today()


def test_each_environment_has_a_badge() -> None:
    lacking = list[str]()
    for name in NAMES:
        if name in UNMEASURED:
            continue
        definition, source = catalogue.definition(name)
        try:
            requirements.require_defined(name, definition, {})
        except UsageError:
            continue
        if not badge(name, source).text:
            lacking.append(name)
    assert not lacking, f"gym-runtime audit {' '.join(lacking)} --seconds 240 --repeats 3 --keep-rates"


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] * (name not in TODAY)) for name in NAMES]
)
async def test_rates_are_those_that_are_kept(name: str) -> None:
    environment = usable(name)
    if name in UNMEASURED:
        pytest.skip("it needs what is not here")
    if name in LONG:
        pytest.skip("to run its programs takes minutes")
    kept = kept_rates.read(environment.source.parent)[name]
    if kept.audit != VERSION:
        pytest.skip(f"measured with the replies of {kept.audit}: {again(name)}")
    artifact = await Auditor(name, environment, PLAN).measure()
    made = kept_rates.kept(artifact)
    assert made.input_sha256 == kept.input_sha256, f"other rows: {again(name)}"
    for kind in COMPARED:
        before, now = kept.rates[kind], made.rates[kind]
        about = f"{kind}, {now.by}: {again(name)}"
        if artifact.cost.not_reached or kept.not_reached:  # then some findings are missing in one of them
            fewer, more = sorted((before, now), key=lambda one: one.tried)
            assert (fewer.found or 0) <= (more.found or 0), about
        else:
            assert (now.found, now.rows) == (before.found, before.rows), about


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize(
    "name", ["mcqa", "gpqa_diamond", "single_step_tool_use_with_argument_comparison", "xlam_fc"]
)
async def test_the_strict_rule_is_cheated_on_fewer_rows_and_refuses_no_gold(name: str) -> None:
    environment = with_settings(catalogue.environment(name), {"strict": True})
    plan = Plan(seconds=30.0, repeats=1, elsewhere=False, slow=False)
    strict = kept_rates.kept(await Auditor(name, environment, plan).measure()).rates
    lenient = kept_rates.read(environment.source.parent)[name].rates
    assert strict["gold_fails"].found == strict["false_negative"].found == strict["false_positive"].found == 0
    assert (lenient["false_positive"].found or 0) >= 2


def again(name: str) -> str:
    return f"gym-runtime audit {name} --seconds 240 --repeats 3 --keep-rates; python .ci/reference"


def test_a_badge_of_a_changed_module_is_outdated(tmp_path: Path) -> None:
    _, source = catalogue.definition("string_match")
    (tmp_path / "audits.jsonl").write_bytes((source.parent / "audits.jsonl").read_bytes())
    copy = tmp_path / source.name
    copy.write_bytes(source.read_bytes())
    fresh = badge("string_match", copy)
    assert fresh.text.startswith("fp ")
    copy.write_bytes(source.read_bytes() + b"# changed\n")
    assert badge("string_match", copy) == msgspec.structs.replace(fresh, outdated=True)
    assert badge("unknown", copy).text == ""
