"""Each rule by which NeMo Gym's rewards are decided, with replies of our own.

The modules of `resources.fidelity` hold the rules, in sentences, for each environment. Where ours is stricter
on purpose, the case is `REFUSED` and the environment's docstring says why.
"""

from __future__ import annotations

import os
from collections import Counter

import msgspec
import pytest
from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.isolated import judge_recorded
from gym_runtime.environment.replaying import rejudge
from gym_runtime.environment.roles import ScriptedAnswers
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.errors import TaskError
from gym_sandbox import bubblewrap
from gym_sandbox.sandbox_errors import SetupError
from resources.fidelity import actions, choices, documents, grids, mathematics, places, programs, worlds
from resources.fidelity.rules import REFUSED, Rule

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]
MODULES = (actions, choices, documents, grids, mathematics, places, programs, worlds)
RULES: list[Rule] = [rule for module in MODULES for rule in module.RULES]
ENVIRONMENTS = {
    *("arc_agi", "blackjack", "calendar", "code_gen", "ether0", "example_multi_turn_gymnasium"),
    *("example_tool_call_multireward", "gpqa_diamond", "instruction_following"),
    *("math_advanced_calculations", "math_with_code", "math_with_judge", "mcqa", "reasoning_gym"),
    *("single_step_tool_use_with_argument_comparison", "spider2_lite", "structured_outputs"),
    *("terminus_judge", "workplace_assistant", "xlam_fc", "xstest"),
}


def test_each_environment_has_rules_and_each_rule_has_cases() -> None:
    assert {rule.environment for rule in RULES} == ENVIRONMENTS
    assert all(rule.cases for rule in RULES)
    assert not [
        rule for rule, times in Counter((one.environment, one.says) for one in RULES).items() if times > 1
    ]


@pytest.mark.parametrize("rule", [pytest.param(one, id=f"{one.environment}: {one.says}") for one in RULES])
async def test_a_rule_holds(rule: Rule) -> None:
    loaded = catalogue.environment(rule.environment)
    try:
        requirements.require(loaded)
        bubblewrap.check(os.getpid())
    except SetupError as error:
        pytest.skip(str(error))
    row = msgspec.json.encode({"responses_create_params": {"input": "go"}, **rule.task})
    for reply, worth in rule.cases:
        items = [reply] if isinstance(reply, str) or hasattr(reply, "keys") else reply
        if worth == REFUSED:
            with pytest.raises(TaskError):
                loaded.resource.task(row)
            continue
        if rule.answers:
            models = ScriptedAnswers(rule.answers).models(loaded.resource.roles)
            verdict = await judge_recorded(loaded, row, make_response(*items), models)
        else:
            verdict = await rejudge(loaded.resource, row, make_response(*items))
        assert isinstance(verdict, Verdict)
        if isinstance(worth, float):
            assert verdict.reward == pytest.approx(worth), (reply, verdict.fields)
        else:
            assert {name: verdict.fields.get(name) for name in worth} == worth, (reply, verdict)
