"""Where an engine is and who we are to it."""

from __future__ import annotations

import sys

import pytest
from gym_models.wire.endpoint import resolve
from gym_runtime.errors import UsageError
from gym_runtime.workers.adapter import ModelSettings


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)


def settings(*urls: str, **more: object) -> ModelSettings:
    return ModelSettings(provider="openai", name="m", urls=urls, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
        ("http://vllm:8000/serve/v1", "http://vllm:8000/serve/v1"),
    ],
)
def test_urls(given: str, url: str) -> None:
    (found,) = resolve(settings(given))
    assert found.url == url
    assert found.private
    assert "authorization" not in found.headers


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:8000", "ftp://x/v1", "http://", "", "http://h:99999/v1", "http://[::1"),
        *("http://a..b/v1", f"http://{'a' * 64}.org/v1", "http://\u202e/v1"),
    ],
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(UsageError, match="is not a model URL"):
        resolve(settings(url))


def test_a_private_engine_needs_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)  # an import would fail
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    (found,) = resolve(settings("http://10.1.2.3:8000/v1", headers={"X-Team": "t"}))
    assert found.headers["authorization"] == "Bearer k"
    assert found.headers["x-team"] == "t"


def test_openai_itself_needs_a_key() -> None:
    with pytest.raises(UsageError, match=r"needs a key: set the environment variable OPENAI_API_KEY"):
        resolve(settings())


def test_a_variable_that_was_named_must_be_set() -> None:
    with pytest.raises(UsageError, match=r"MY_KEY, which is to hold the model's key, is not set"):
        resolve(settings("http://127.0.0.1:1/v1", api_key_variable="MY_KEY"))


def test_the_client_says_who_we_are_to_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj")
    (found,) = resolve(settings(headers={"OpenAI-Project": "mine"}))
    assert found.url == "https://api.openai.com/v1"
    assert found.headers == {
        "authorization": "Bearer k",
        "openai-organization": "org",
        "openai-project": "mine",
        "accept": "application/json",
        "content-type": "application/json",
    }
    monkeypatch.delenv("OPENAI_API_KEY")
    (found,) = resolve(settings("https://models.example.com/v1"))
    assert "authorization" not in found.headers
    assert not found.has_key


def test_the_base_url_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:9/v1")
    assert [one.url for one in resolve(settings())] == ["http://localhost:9/v1"]
