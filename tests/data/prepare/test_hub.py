"""Downloads, from a hub on this machine."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest
from gym_data.prepare import hub as real
from gym_data.prepare.sources import Origins
from gym_runtime.environment.environment import DatasetSource
from gym_runtime.errors import UsageError
from stubs.stub_hub import StubHub

SOURCE = DatasetSource(repo_id="someone/numbers", file="data/train.jsonl", license="MIT")
CONTENT = b"".join(b'{"number": %d}\n' % number for number in range(20_000))


def test_a_file_is_fetched_once_and_its_commit_is_known(hub: StubHub) -> None:
    commit = hub.commit("someone/numbers", {"data/train.jsonl": CONTENT})
    seen: list[tuple[int, int]] = []
    found = real.fetch(SOURCE, report=lambda done, total: seen.append((done, total)))
    assert (found.path.read_bytes(), found.commit) == (CONTENT, commit)
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert real.fetch(SOURCE) == found
    assert [one.method for one in hub.requests if "/resolve/" in one.path] == ["HEAD", "GET", "HEAD"]


def test_lines_of_the_library_are_not_shown_twice(hub: StubHub) -> None:
    hub.commit("someone/numbers", {"data/train.jsonl": CONTENT})
    library = logging.getLogger("huggingface_hub")
    library.addHandler(logging.StreamHandler())  # as the library does when it is imported
    real.fetch(SOURCE)
    assert (library.handlers, library.propagate) == ([], True)


def test_a_branch_that_moved_gives_what_it_was_where_a_commit_is_named(hub: StubHub) -> None:
    first = hub.commit("someone/numbers", {"data/train.jsonl": b"old"})
    second = hub.commit("someone/numbers", {"data/train.jsonl": b"new"})
    assert real.fetch(SOURCE).path.read_bytes() == b"new"
    assert real.fetch(SOURCE).commit == second
    assert real.fetch(SOURCE, commit=first).path.read_bytes() == b"old"


@pytest.mark.slow
def test_a_download_that_broke_off_goes_on_where_it_was(hub: StubHub) -> None:
    content = bytes(range(256)) * 45_000  # the library keeps what it has in blocks of 10 MB
    hub.commit("someone/numbers", {"data/train.jsonl": content})
    hub.break_after = 11_000_000
    assert real.fetch(SOURCE).path.read_bytes() == content
    ranges = [one.range for one in hub.requests if one.method == "GET" and "/resolve/" in one.path]
    assert ranges[0] == ""
    assert ranges[1].startswith("bytes=10485760-")


def test_a_file_that_is_here_needs_no_hub(hub: StubHub, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.commit("someone/numbers", {"data/train.jsonl": CONTENT})
    found = real.fetch(SOURCE)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert real.fetch(SOURCE, commit=commit) == found


def test_the_token_opens_a_private_repository(hub: StubHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.commit("someone/numbers", {"data/train.jsonl": CONTENT}, token="hf_secret")
    with pytest.raises(UsageError, match="or it is private and HF_TOKEN does not open it"):
        real.fetch(SOURCE)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(UsageError, match="its owner must grant you access") as refused:
        real.fetch(SOURCE)
    assert "hf_wrong" not in refused.value.message
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert real.fetch(SOURCE).path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"repo_id": "someone/else"}, "there is no such data set"),
        ({"revision": "v9"}, "there is no such revision"),
        ({"file": "train.json"}, "there is no such file"),
        ({"repo_id": "no/such/thing"}, "no/such/thing"),
    ],
)
def test_what_is_not_there_is_one_line(change: dict[str, str], said: str, hub: StubHub) -> None:
    hub.commit("someone/numbers", {"data/train.jsonl": CONTENT})
    source = DatasetSource(
        **{"repo_id": "someone/numbers", "file": "data/train.jsonl", "license": "", **change}
    )
    with pytest.raises(UsageError, match=said) as refused:
        real.fetch(source)
    assert "\n" not in refused.value.message


def test_a_server_that_is_no_hub_is_one_line(hub: StubHub) -> None:
    hub.commit("someone/numbers", {"data/train.jsonl": CONTENT})
    hub.names_commits = False
    with pytest.raises(
        UsageError,
        match=r"the hub cannot be reached, and the file is not here: .*; set HF_ENDPOINT to a mirror",
    ):
        real.fetch(SOURCE)


@pytest.mark.parametrize("commit", ["../../../refs", "/etc", "a/b", "main", "0" * 65, 5])
def test_a_commit_that_is_none_is_refused_before_it_is_asked_for(commit: object, tmp_path: Path) -> None:
    path = tmp_path / "sources.json"
    entry = {"repo_id": SOURCE.repo_id, "file": SOURCE.file, "revision": SOURCE.revision, "commit": commit}
    path.write_bytes(msgspec.json.encode({SOURCE.split: [entry]}))
    with pytest.raises(UsageError, match="is not a commit; remove it to start again"):
        Origins(path).commit(SOURCE)
