"""What was said, what was not, and what a file says instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from gym_runtime.cli import main
from gym_runtime.cli.app import application
from gym_runtime.cli.config import load_config
from gym_runtime.cli.models import parse_model
from gym_runtime.cli.options import BROKER, BrokerOptions, ModelOptions, RolloutOptions, parse_urls
from gym_runtime.cli.run import RunOptions
from gym_runtime.errors import UsageError
from gym_runtime.messages.rollout_settings import Sampling
from runtime.cli.in_process import ran
from tables import table

FILE = """
nats = "nats://10.0.0.5:4222"
prefix = "lab"
[[pools]]
kind = "model"
[pools.model]
provider = "openai"
name = "Qwen/Qwen3-4B"
urls = ["http://10.0.0.7:8000/v1"]
headers = { team = "us" }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "system.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("names", "options", "path"),
    [
        (("mcqa",), RunOptions(), "results/mcqa.jsonl"),
        (("mcqa", "some/where/own.py"), RunOptions(), "results/mcqa-own.jsonl"),
        ((), RunOptions(input=Path("data/rows.jsonl")), "results/rows.jsonl"),
        (("mcqa",), RunOptions(output=Path("x.jsonl")), "x.jsonl"),
    ],
)
def test_where_the_rollouts_go(names: tuple[str, ...], options: RunOptions, path: str) -> None:
    assert options.output_path(names) == Path(path)


def test_only_what_was_said_overrides_the_rows() -> None:
    assert Sampling().overrides() == {}
    assert Sampling(temperature=0.0, max_output_tokens=5).overrides() == {
        "temperature": 0.0,
        "max_output_tokens": 5,
    }


@pytest.mark.parametrize(
    "said",
    [
        ["--chat-template-kwargs.enable_thinking", "false", "--extra-body.top_k", "5"],
        ["--chat-template-kwargs", '{"enable_thinking": false}', "--extra-body", '{"top_k": 5}'],
    ],
    ids=["one by one", "as JSON"],
)
def test_what_goes_to_the_engine_keeps_its_types(said: list[str]) -> None:
    _, bound, _ = application().parse_args(["run", "mcqa", *said])
    settings = bound.arguments["options"].rollouts.chosen()
    assert settings.sampling == {
        "chat_template_kwargs": {"enable_thinking": False},
        "extra_body": {"top_k": 5},
    }


def test_models() -> None:
    assert parse_model(ModelOptions()).provider == "embedded"
    found = parse_model(
        ModelOptions(model="openai/Qwen/Qwen3-4B", model_urls=("http://a/v1",), model_api="chat")
    )
    assert (found.provider, found.name, found.urls, found.api) == (
        "openai",
        "Qwen/Qwen3-4B",
        ("http://a/v1",),
        "chat",
    )


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="model URL holds a user or a password") as caught:
        parse_model(ModelOptions(model="openai/m", model_urls=("http://me:hunter2@a/v1",)))
    assert "hunter2" not in caught.value.message


def test_a_provider_of_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no model provider 'mine'"):
        parse_model(ModelOptions(model="mine/x"))
    Path("mine.py").write_text("")
    assert parse_model(ModelOptions(model="mine/x")).provider == "mine"


def test_a_file_says_what_the_command_line_does_not(file: Path) -> None:
    config = load_config(file)
    broker = config.broker(BROKER)
    assert (broker.urls, broker.prefix) == (("nats://10.0.0.5:4222",), "lab")
    settings = parse_model(ModelOptions(), config.models["policy"])
    assert (settings.name, settings.headers) == ("Qwen/Qwen3-4B", {"team": "us"})


def test_the_command_line_wins_over_the_file(file: Path) -> None:
    broker = BrokerOptions(nats="nats://b", prefix="own")
    config = load_config(file)
    assert config.broker(broker) == broker
    models = config.models
    assert parse_model(ModelOptions(model="scripted/message"), models["policy"]).provider == "scripted"
    elsewhere = parse_model(ModelOptions(model_urls=("http://10.0.0.9/v1",)), models["policy"])
    assert (elsewhere.name, elsewhere.urls) == ("Qwen/Qwen3-4B", ("http://10.0.0.9/v1",))


def test_several_brokers_are_separated_by_commas() -> None:
    assert parse_urls("nats://a:1, nats://b:2,") == ("nats://a:1", "nats://b:2")
    assert parse_urls("") == ()


@pytest.mark.parametrize(
    ("given", "repeats"),
    [((), None), (("3",), 3), (("mcqa=4", "gpqa=8"), {"mcqa": 4, "gpqa": 8})],
)
def test_repeats_are_of_all_environments_or_of_each(given: tuple[str, ...], repeats: object) -> None:
    settings = RolloutOptions(repeats=given).chosen()
    assert settings.repeats == repeats
    assert settings.repeats_of("other", 5) == (3 if repeats == 3 else 5)


@table("given", [("0",), ("x",), ("3", "4"), ("mcqa=0",), ("mcqa=x",), ("mcqa=1", "3")])
def test_repeats_of_another_form_are_refused(given: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="repeats"):
        RolloutOptions(repeats=given).chosen()


@pytest.mark.parametrize("option", ["--model", "--judge"])
def test_an_empty_name_of_a_model_is_not_the_default_one(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["run", "mcqa", "--dry-run", option, ""]) == 2
    assert capsys.readouterr().err == (
        f"gym-runtime: invalid value for {option}: it is empty; give PROVIDER/NAME, or leave the option out\n"
    )
    assert main.run(["run", "mcqa", "--dry-run"]) == 0


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("drain", "name what to drain: a worker, a kind such as agent, a pool or a host"),
        ("set 20260101-000000-abcdef", "gym-runtime set 20260101-000000-abcdef concurrency=100"),
        ("fork any.jsonl:0@1 --input rows.jsonl", "leave --input out"),
        ("fork any.jsonl", "'any.jsonl' names no turn: give FILE:TASK@TURN"),
        ("run mcqa --retry-failed", "--resume --retry-failed"),
    ],
)
def test_what_a_command_lacks_is_one_line(command: str, message: str, tmp_path: Path) -> None:
    status, out, err = ran(tmp_path, *command.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
