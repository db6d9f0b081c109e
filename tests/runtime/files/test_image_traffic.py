"""What images cost on their way, over a real broker: a new image in each turn, or the same one again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import nats
import pytest
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.environment import catalogue
from gym_runtime.files.stored_images import ImageStore, images_of
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from nats.aio.msg import Msg

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]

ON_THE_WAY = {
    "tools": "_INBOX.gym.agent",
    "model": "gym.model",
    "journal": "gym.journal",
    "verdict": "gym.resource",
    "result": "gym.rollout",
}
SCREENS = """
import random
from gym_runtime import Environment, Image, Session, Task, Verdict, tool
from runtime.environment.image_samples import png

class Screens(Session[Task]):
    async def open(self):
        self.looks = 0

    @tool
    def look(self) -> list:
        'Look at the screen.'
        self.looks += 1
        image, rest = png(8, 8), random.Random(SEED)
        return [Image(image[:-12] + rest.randbytes(SIZE - len(image)) + image[-12:])]

    async def verify(self, reply):
        return Verdict(1.0)

environment = Environment(resource=Screens, description="")
"""
LOOK = {"type": "function_call", "name": "look", "arguments": "{}"}


class Way(NamedTuple):
    """What was seen of one way.

    Attributes:
        total, largest: bytes of all messages, and of the largest one.
    """

    total: int = 0
    largest: int = 0


async def played(
    folder: Path, monkeypatch: pytest.MonkeyPatch, turns: int, size: int, *, equal: bool
) -> tuple[RolloutRecord, dict[str, Way]]:
    """A rollout that gets an image in each turn."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    source = SCREENS.replace("SEED", "1" if equal else "self.looks").replace("SIZE", str(size))
    (folder / "screens.py").write_text(source)
    said = [[{**LOOK, "call_id": f"c{number}"}] for number in range(turns)]
    (folder / "turns.jsonl").write_text("".join(json.dumps(one) + "\n" for one in [*said, ["done"]]))
    name = str(folder / "screens.py")
    tools = [one.definition() for one in catalogue.environment(name).resource.tools.values()]
    model = ModelSettings(provider="scripted", name=str(folder / "turns.jsonl"))
    ways = dict.fromkeys(ON_THE_WAY, Way())

    async def see(message: Msg) -> None:
        for way, subject in ON_THE_WAY.items():
            if message.subject.startswith(subject):
                more = len(message.data)
                ways[way] = Way(ways[way].total + more, max(ways[way].largest, more))

    async with (
        running(SystemSpec(pools=make_pools([name], model))) as system,
        connect(nats=system.url) as gym,
    ):
        tap = await nats.connect(system.url)
        await tap.subscribe("gym.>", cb=see)
        await tap.subscribe("_INBOX.>", cb=see)
        await tap.flush()
        row = {"responses_create_params": {"input": "look", "tools": tools}}
        (record,) = [one async for one in gym.rollouts([row], environment=name)]
        await tap.drain()  # what is still on its way to it counts, too
    assert (record.outcome, record.turns) == (Completed(), turns + 1)
    return record, ways


async def test_an_image_takes_each_way_once_however_often_the_model_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, size = 20, 200_000
    record, ways = await played(tmp_path, monkeypatch, turns, size, equal=False)
    images = turns * size
    for way, seen in ways.items():  # in Base64: four bytes for three; a result is stored, and read
        times = 2 if way == "result" else 1
        assert 4 / 3 < seen.total / images / times < 1.36, (way, seen)
        assert way in ("verdict", "result") or seen.largest < 1.36 * size
    inline = bytes(record.row)
    rows = tmp_path / "rows.jsonl"
    stored = ImageStore(rows, "files").stored(inline)
    files = [path.stat().st_size for path in images_of(rows).iterdir()]
    print(f"{images} bytes of images: {ways}, the row {len(inline)}, or {len(stored)} and {sum(files)}")
    assert 4 / 3 < len(inline) / images < 1.36
    assert files == [size] * turns
    assert len(stored) < 0.01 * images


async def test_thirty_equal_screenshots_are_one_in_the_journal_the_verdict_and_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, size = 30, 500_000
    record, ways = await played(tmp_path, monkeypatch, turns, size, equal=True)
    print(ways)
    assert all(0 < seen.largest < 1_000_000 for seen in ways.values())
    assert ways["journal"].total < 1_000_000
    assert ways["verdict"].total < 1_000_000
    inline = bytes(record.row)
    assert inline.count(b'"image_url":"data:image/png;base64,') == turns
    assert not record.images
    rows = tmp_path / "rows.jsonl"
    stored = ImageStore(rows, "files").stored(inline)
    assert len(stored) + sum(path.stat().st_size for path in images_of(rows).iterdir()) < 700_000
