"""A system's file: what it may say, and how a mistake in it is answered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gym_runtime.cli.config import load_config
from gym_runtime.errors import UsageError

MODEL = '[[pools]]\nkind = "model"\n[pools.model]\nprovider = "openai"\nname = "m"\n'


def write(tmp_path: Path, text: str, mode: int = 0o644) -> Path:
    path = tmp_path / "system.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_everything_may_be_left_out(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, ""))
    assert (config.urls, config.prefix, config.pools) == ((), "gym", ())


def test_several_brokers(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, 'nats = ["nats://a", "nats://b"]')).urls == ("nats://a", "nats://b")


def test_a_byte_order_mark_is_no_setting(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, '\ufeffprefix = "lab"')).prefix == "lab"


REFUSED = {
    'nast = "nats://a"': "there is no setting 'nast'; did you mean 'nats'?",
    "colour = 3": "there is no setting 'colour'; there are: nats, prefix",
    '[[pools]]\nkind = "agent"\nproceses = 2': "'proceses' in pools[0]; did you mean 'processes'?",
    MODEL + 'providr = "x"': "'providr' in pools[0].model; did you mean 'provider'?",
    '[[pools]]\nkind = "agents"': "invalid enum value 'agents'; there are: agent, model, resource",
    '[[pools]]\nnames = ["mcqa"]': "pools[0]: object missing required field `kind`",
    '[[pools]]\nkind = "agent"\nprocesses = "two"': "pools[0].processes: expected `int`, got `str`",
    '[[pools]]\nkind = "agent"\nprocesses = 0': "at least one process",
    "pools = 3": "pools: expected `array`, got `int`",
    "nats = \n": "is not TOML: Invalid value (at line 1, column 8)",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_mistake_is_refused_with_its_place(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        load_config(path)
    assert str(refused.value).startswith(str(path))
    assert REFUSED[text] in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*missing\.toml: No such file"):
        load_config(tmp_path / "missing.toml")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_key_that_others_can_read_is_refused_and_not_shown(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path, MODEL + 'api_key = "sk-secret"', mode)
    with pytest.raises(UsageError, match=f"chmod 600 {path}") as refused:
        load_config(path)
    assert "sk-secret" not in str(refused.value)


def test_a_key_travels_in_the_environment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    config = load_config(write(tmp_path, MODEL + 'api_key = "sk-secret"', 0o600))
    model = config.pools[0].model
    assert model is not None
    assert os.environ[model.api_key_variable] == "sk-secret"
    assert "sk-secret" not in repr(config)


def test_a_wrong_value_beside_a_key_does_not_show_the_key(tmp_path: Path) -> None:
    path = write(tmp_path, MODEL + 'urls = 3\napi_key = "sk-secret"', 0o600)
    with pytest.raises(UsageError, match="urls") as refused:
        load_config(path)
    assert "sk-secret" not in str(refused.value)
