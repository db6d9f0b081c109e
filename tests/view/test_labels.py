"""Labels and notes of a person: stored beside the results, by the page alone, and exported as columns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.errors import UsageError
from gym_view import training_data
from gym_view.labels import Label, Labelled, labels_path, load_labels, put_label
from view.test_server import Client, row, viewing

SAID = {"rollout": "0.0", "label": "wrong verdict", "note": "7 is right", "rollout_id": ""}


async def post(client: Client, said: Any, **headers: str) -> int:
    return (await answered(client, said, **headers))[0]


async def answered(client: Client, said: Any, **headers: str) -> tuple[int, str]:
    given = {"Origin": client.base, "Content-Type": "application/json", **headers}
    sent = {name: value for name, value in given.items() if value}
    url = f"{client.base}/data/a/labels.json"
    async with client.session.post(url, data=json.dumps(said), headers=sent) as answer:
        return answer.status, await answer.text()


@pytest.mark.anyio
async def test_the_page_stores_labels(tmp_path: Path) -> None:
    rows = tmp_path / "a.jsonl"
    rows.write_bytes(row(0))
    async with viewing(tmp_path) as client:
        assert (await client.get("/data/a/labels.json"))[1] == b"{}"
        assert await post(client, SAID) == 200
        stored = json.loads((await client.get("/data/a/labels.json"))[1])
        assert stored == {"0.0": {"label": "wrong verdict", "note": "7 is right"}}
        assert json.loads(labels_path(rows).read_text()) == stored
        assert await post(client, {**SAID, "label": "", "note": "", "was": SAID}) == 200
        assert load_labels(rows) == {}


@pytest.mark.anyio
async def test_what_another_tab_has_stored_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    rows = tmp_path / "a.jsonl"
    rows.write_bytes(row(0))
    async with viewing(tmp_path) as one, viewing(tmp_path) as other:
        assert await post(one, {"rollout": "0.0", "label": "good"}) == 200
        # The other has seen no label: its note is kept beside it, its label is refused.
        assert await post(other, {"rollout": "0.0", "note": "clear"}) == 200
        status, why = await answered(other, {"rollout": "0.0", "label": "bad", "note": "clear"})
        assert (status, "Another tab has changed this label to “good”" in why) == (409, True)
        assert load_labels(rows) == {"0.0": Label(label="good", note="clear")}
        # Now it knows, and means it.
        known = {"label": "good", "note": "clear"}
        assert await post(other, {"rollout": "0.0", "label": "bad", "note": "", "was": known}) == 200
        status, why = await answered(one, {"rollout": "0.0", "label": "good", "note": "so", "was": known})
        assert (status, why.startswith("Another tab has removed this note.")) == (409, True)
        assert load_labels(rows) == {"0.0": Label(label="bad")}


def test_two_viewers_of_a_file_lose_no_label(tmp_path: Path) -> None:
    rows, count = tmp_path / "a.jsonl", 40
    program = (
        "import sys; from pathlib import Path; from gym_view.labels import Labelled, put_label\n"
        f"for k in range({count}):\n"
        "    put_label(Path(sys.argv[1]), Labelled(rollout=f'{sys.argv[2]}.{k}', label='x'))"
    )
    command = [sys.executable, "-c", program, str(rows)]
    for one in [subprocess.Popen([*command, str(task)]) for task in range(3)]:
        assert one.wait() == 0
    assert len(load_labels(rows)) == 3 * count


@pytest.mark.anyio
async def test_nothing_else_is_written_and_nobody_else_writes(tmp_path: Path) -> None:
    rows = tmp_path / "a.jsonl"
    rows.write_bytes(row(0))
    async with viewing(tmp_path) as client:
        assert await post(client, SAID, Origin="http://evil.example") == 403
        assert await post(client, SAID, Origin="") == 403
        assert await post(client, SAID, **{"Content-Type": "text/plain"}) == 403
        async with client.session.post(f"{client.base}/data/a/rollouts.jsonl") as answer:
            assert answer.status == 403
        for said in ({}, {**SAID, "rollout": "../x"}, {**SAID, "note": "x" * 10_001}, [1]):
            assert await post(client, said) == 400
        client.session.cookie_jar.clear()
        assert await post(client, SAID) == 403
    assert not labels_path(rows).exists()


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    rows, other = tmp_path / "a.jsonl", tmp_path / "other"
    other.write_text("{}")
    labels_path(rows).symlink_to(other)
    with pytest.raises(UsageError, match="symbolic link"):
        put_label(rows, Labelled(rollout="0.0", label="x"))
    assert other.read_text() == "{}"


def test_labels_are_columns_of_an_export(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = tmp_path / "a.jsonl"
    rows.write_bytes(row(0) + row(1) + row(2, _gym={"rollout_id": "new.2.0"}))
    put_label(rows, Labelled(rollout="1.0", label="good", note="clear"))
    # Said of a rollout of an earlier run in this file.
    put_label(rows, Labelled(rollout="2.0", label="bad", rollout_id="old.2.0"))
    training_data.export([rows], tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column("label").to_pylist() == [None, "good", None]
    assert table.column("note").to_pylist() == [None, "clear", None]
