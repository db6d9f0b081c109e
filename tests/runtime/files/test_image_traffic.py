"""What images cost on their way: 20 turns with a new image of 200 kB in each, over a real broker."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import nats
import pytest
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.environment import catalogue
from gym_runtime.files.stored_images import ImageStore, images_of
from gym_runtime.messages.outcomes import Completed
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from nats.aio.msg import Msg

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]

TURNS, IMAGE_BYTES = 20, 200_000
SCREENS = f"""
import random
from gym_runtime import Environment, Image, Session, Task, Verdict, tool
from runtime.environment.image_samples import png

class Screens(Session[Task]):
    async def open(self):
        self.looks = 0

    @tool
    def look(self) -> list:
        \"\"\"Look at the screen.\"\"\"
        self.looks += 1
        image, rest = png(8, 8), random.Random(self.looks)
        return [Image(image[:-12] + rest.randbytes({IMAGE_BYTES} - len(image)) + image[-12:])]

    async def verify(self, reply):
        return Verdict(1.0)

environment = Environment(resource=Screens, description="")
"""
LOOK = {"type": "function_call", "name": "look", "arguments": "{}"}
ON_THE_WAY = {
    "tools": "_INBOX.gym.agent",
    "model": "gym.model",
    "journal": "gym.journal",
    "verdict": "gym.resource",
}


async def test_an_image_takes_each_way_once_however_often_the_model_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    (tmp_path / "screens.py").write_text(SCREENS)
    turns = [[{**LOOK, "call_id": f"c{number}"}] for number in range(TURNS)]
    (tmp_path / "turns.jsonl").write_text("".join(json.dumps(one) + "\n" for one in [*turns, ["done"]]))
    name = str(tmp_path / "screens.py")
    tools = [one.definition() for one in catalogue.environment(name).resource.tools.values()]
    model = ModelSettings(provider="scripted", name=str(tmp_path / "turns.jsonl"))
    sizes: Counter[str] = Counter()
    largest = 0

    async def see(message: Msg) -> None:
        nonlocal largest
        for way, subject in ON_THE_WAY.items():
            if message.subject.startswith(subject):
                sizes[way] += len(message.data)
                if way != "verdict":
                    largest = max(largest, len(message.data))

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
        await tap.close()
    assert (record.outcome, record.turns) == (Completed(), TURNS + 1)
    images = TURNS * IMAGE_BYTES
    for way, size in sizes.items():  # in Base64: four bytes for three
        assert 4 / 3 < size / images < 1.36, (way, size)
    assert set(sizes) == set(ON_THE_WAY)
    assert largest < 1.36 * IMAGE_BYTES
    inline = bytes(record.row)
    rows = tmp_path / "rows.jsonl"
    stored = ImageStore(rows, "files").stored(inline)
    files = [path.stat().st_size for path in images_of(rows).iterdir()]
    print(
        f"{images} bytes of images: {dict(sizes)}, the row {len(inline)}, or {len(stored)} and {sum(files)}"
    )
    assert 4 / 3 < len(inline) / images < 1.36
    assert files == [IMAGE_BYTES] * TURNS
    assert len(stored) < 0.01 * images
