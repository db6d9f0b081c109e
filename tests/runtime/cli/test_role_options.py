"""Options for models in roles."""

from __future__ import annotations

from typing import Any

import pytest
from gym_runtime.cli.models import parse_roles
from gym_runtime.cli.options import ModelOptions, RoleOptions, RolePoolOptions, RolloutOptions
from gym_runtime.cli.start import StartOptions, plan
from gym_runtime.errors import UsageError
from gym_runtime.workers.adapter import ModelSettings
from tables import table


def test_a_model_for_each_role() -> None:
    found = parse_roles(
        RoleOptions(
            judge="scripted/judge",
            roles=("critic=openai/Qwen/Qwen3-4B", "user=policy"),
            role_urls=("critic=http://a/v1", "critic=http://b/v1"),
        )
    )
    assert found == {
        "judge": ModelSettings(provider="scripted", name="judge"),
        "critic": ModelSettings(provider="openai", name="Qwen/Qwen3-4B", urls=("http://a/v1", "http://b/v1")),
        "user": None,
    }


@table(
    ("options", "message"),
    [
        (RoleOptions(roles=("judge",)), "--role judge: write it as NAME=PROVIDER/NAME"),
        (RoleOptions(roles=("judge=a/b",), judge="c/d"), "--role judge=…: the role has a model already"),
        (RoleOptions(judge="scripted"), "--judge scripted lacks the model's name"),
        (RoleOptions(judge="scriptd/judge"), "--judge scriptd/judge: there is no model provider 'scriptd'"),
        (RoleOptions(roles=("critic=nosuch",)), "--role critic=nosuch: write it as PROVIDER/NAME"),
        (RoleOptions(role_urls=("judge=http://a",)), "--role judge=openai/NAME"),
        (RoleOptions(judge="policy", role_urls=("judge=http://a",)), "needs the model's name"),
    ],
)
def test_what_is_wrong_with_a_role_is_said(options: RoleOptions, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_roles(options)
    assert message in caught.value.message


def test_pools_for_roles() -> None:
    options = RolePoolOptions(judge="big", roles=("critic=policy",))
    assert options.pools() == {"critic": "policy", "judge": "big"}
    with pytest.raises(UsageError, match="the role has a pool already"):
        RolePoolOptions(judge="big", roles=("judge=small",)).pools()


def test_the_sampling_of_roles() -> None:
    given = ("judge.temperature=0", "judge.max_output_tokens=9", "critic.top_p=0.5")
    assert RolloutOptions(role_sampling=given).chosen().role_sampling == {
        "judge": {"temperature": 0, "max_output_tokens": 9},
        "critic": {"top_p": 0.5},
    }
    for text, message in (
        ("judge=1", "write it as ROLE.FIELD=VALUE"),
        ("judge.temperature", "write it as ROLE.FIELD=VALUE"),
        ("judge.temprature=0", "did you mean 'temperature'"),
        ("judge.temperature=cold", "role_sampling of 'judge'"),
    ):
        with pytest.raises(UsageError, match=message):
            RolloutOptions(role_sampling=(text,)).chosen()
    with pytest.raises(UsageError, match="has a value already"):
        RolloutOptions(role_sampling=("judge.top_p=1", "judge.top_p=0.5")).chosen()


def test_options_of_the_agent() -> None:
    given = ("max_time_s=60", 'done_tools=["submit"]', "nudge=Go on.")
    said = {"max_time_s": 60, "done_tools": ["submit"], "nudge": "Go on."}
    assert RolloutOptions(agent_options=given).chosen().agent_options == said
    with pytest.raises(UsageError, match="--agent-set max_time_s: write it as NAME=VALUE"):
        RolloutOptions(agent_options=("max_time_s",)).chosen()


def test_start_takes_a_pool_for_a_role() -> None:
    def started(*pools: str, **roles: Any) -> dict[tuple[str, ...], str]:
        options = StartOptions(model=ModelOptions(model="scripted/message"), roles=RoleOptions(**roles))
        spec = plan(options, pools)
        return {pool.names: pool.model.name for pool in spec.pools if pool.model}

    assert started("model", "model:judge", judge="scripted/judge") == {
        ("policy",): "message",
        ("judge",): "judge",
    }
    assert started(roles=("judge=scripted/judge",))[("judge",)] == "judge"
    with pytest.raises(UsageError, match="add 'model:judge'"):
        started("model", judge="scripted/judge")
    with pytest.raises(UsageError, match="a role has a separate pool"):
        started("model:judge", judge="policy")
