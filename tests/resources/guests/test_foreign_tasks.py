"""A thousand tasks of six other projects, from their packages or from generated folders, run here unchanged.

Each gets its own right answer, or nothing; the reward is compared with what its own project says of the same
answer. Run it with ``--soak`` where all of the packages are installed: it takes about a quarter of an hour.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from gym_resources import miniwob
from gym_runtime.environment import catalogue
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.messages.outcomes import RolloutRecord
from gym_testing.small_system import Engine, Turn, answer
from resources.guests import harbor_sets
from resources.guests.guest_runs import OWN, guest, made, own_rows

for package in ("reasoning_gym", "skyrl_gym", "textarena", "inspect_ai", "miniwob"):
    if importlib.util.find_spec(package) is None:  # to import them takes seconds
        pytest.skip(f"needs pip install {package}", allow_module_level=True)
pytestmark = [
    *(pytest.mark.anyio, pytest.mark.soak, pytest.mark.timeout(3600)),
    pytest.mark.filterwarnings("ignore"),  # of the packages' own imports
]
Compared = list[tuple[str, float | None, float]]
"""What a task is, its reward here, and there."""


class Answers(Engine):
    """A model that answers each task with turns of its own, by the task's number in its run."""

    def __init__(self, turns: list[list[Turn]]) -> None:
        super().__init__(answer(""))
        self._of = turns

    async def respond(self, call: Any, context: Any) -> Any:
        self._turns = self._of[int(context.rollout.rsplit(".", 2)[1])]
        return await super().respond(call, context)


async def played(
    name: str, rows: list[dict[str, Any]], turns: list[list[Turn]], **more: Any
) -> list[RolloutRecord]:
    async with guest(name) as system:
        await system.add_model(Answers(turns), name="answers", pool="answers")
        return await made(system, name, rows, model_pool="answers", **more)


async def harbor(folder: Path) -> Compared:
    """What its tests give is arithmetic; `test_harbor_images` compares with Harbor's own runner."""
    harbor_sets.sums(folder / "tasks", 210, lambda _: "")
    found: Compared = []
    for play, right in (("oracle", True), ("nop", False)):
        name = f"harbor:{folder / 'tasks'}?image=none&control=none&play={play}"
        rows = [row for n, row in enumerate(own_rows(name)) if (n % 2 == 0) == right]
        for row, one in zip(rows, await played(name, rows, [[answer("-")]] * len(rows)), strict=True):
            number = int(row["harbor"]["path"].rpartition("-")[2])
            nothing = 0.2 if number % 5 == 0 else 0.0
            found.append((row["harbor"]["path"], one.reward, 1.0 if right else nothing))
    return found


async def reasoning_gym() -> Compared:
    import reasoning_gym as library
    from reasoning_gym.factory import DATASETS

    found: Compared = []
    for name in sorted(set(DATASETS) - {"composite"})[:60]:
        address = f"reasoning-gym:{name}?size=5&seed=1"
        rows, data = own_rows(address), library.create_dataset(name, size=5, seed=1)
        texts = [str(row["answer"]) if n % 2 == 0 else "no" for n, row in enumerate(rows)]
        turns: list[list[Turn]] = [[answer(f"<answer>{text}</answer>")] for text in texts]
        records = await played(address, rows, turns)
        for n, (text, one) in enumerate(zip(texts, records, strict=True)):
            found.append((f"{name} {n}", one.reward, float(data.score_answer(text, data[n]))))
        print(name, flush=True)
    return found


async def textarena() -> Compared:
    from resources.guests.test_textarena import GAMES, MAX_TURNS, direct

    found: Compared = []
    for game, moves in GAMES.items():
        address = f"textarena:{game}?size=20"
        rows = own_rows(address)
        records = await played(address, rows, [list(map(answer, moves))] * len(rows), max_turns=MAX_TURNS)
        for seed, one in enumerate(records):
            found.append((f"{game} {seed}", one.reward, direct(game, seed, moves)[0]))
        print(game, flush=True)
    return found


async def skyrl_gym(folder: Path) -> Compared:
    import skyrl_gym as library

    lines: list[str] = []
    for n in range(220):
        prompt = [{"role": "user", "content": f"What is {n} times 6? End with #### ANSWER."}]
        lines.append(
            json.dumps(
                {
                    "prompt": prompt,
                    "env_class": "gsm8k",
                    "reward_spec": {"method": "rule", "ground_truth": str(6 * n)},
                    "extra_info": {},
                }
            )
        )
    (folder / "sky.jsonl").write_text("\n".join(lines) + "\n")
    address = f"skyrl-gym:gsm8k?data={folder / 'sky.jsonl'}"
    rows = own_rows(address)
    texts = [f"#### {6 * n}" if n % 2 == 0 else "####" for n in range(len(rows))]
    records = await played(address, rows, [[answer(text)] for text in texts])
    found: Compared = []
    for n, (text, one) in enumerate(zip(texts, records, strict=True)):
        env = library.make("gsm8k", extras={"reward_spec": {"method": "rule", "ground_truth": str(6 * n)}})
        env.init([])
        found.append((f"gsm8k {n}", one.reward, float(env.step(text)["reward"])))
    return found


async def inspect() -> Compared:
    """Five tasks of inspect_evals on generated records; `test_inspect_evals` has the others."""
    found: Compared = []
    for name in ("arc.arc_easy", "medqa.medqa", "race_h.race_h", "musr.musr", "hellaswag.hellaswag"):
        address = f"inspect:{OWN / 'generated_evals.py'}@generated?name={json.dumps(name)}"
        rows = own_rows(address)
        records = await played(address, rows, [[answer("ANSWER: B")]] * len(rows))
        first = sorted(range(len(rows)), key=lambda n: str(rows[n]["inspect"]["id"]))
        for place, n in enumerate(first):
            found.append((f"{name} {n}", records[n].reward, 1.0 if place == 0 else 0.0))
    return found


def _pages() -> list[str]:
    return sorted(path.stem for path in Path(miniwob.pages(), "miniwob").glob("*.html"))[:100]


async def miniwob_pages() -> Compared:
    """A model that does nothing gets nothing."""
    found: Compared = []
    pages = await anyio.to_thread.run_sync(_pages)
    resource = catalogue.environment("miniwob").resource
    for page in pages:
        row = {"responses_create_params": {"input": []}, "page": page, "seed": 3, "view": "screen"}
        session = await resource.open(json.dumps(row).encode())
        verdict = await resource.verify(session, make_response("nothing"))
        await resource.close(session)
        assert isinstance(verdict, Verdict)
        found.append((page, verdict.reward, 0.0))
    return found


async def test_a_thousand_foreign_tasks(tmp_path: Path) -> None:
    all_found: dict[str, Compared] = {}
    for name, play in {
        "miniwob": miniwob_pages,
        "inspect": inspect,
        "skyrl-gym": lambda: skyrl_gym(tmp_path),
        "harbor": lambda: harbor(tmp_path),
        "reasoning-gym": reasoning_gym,
        "textarena": textarena,
    }.items():
        all_found[name] = await play()
        differ = [one for one in all_found[name] if one[1] is None or abs(one[1] - one[2]) > 1e-9]
        print(f"{name}: {len(all_found[name])} tasks, {len(differ)} of them differ: {differ[:5]}", flush=True)
    counts = {name: len(found) for name, found in all_found.items()}
    assert sum(counts.values()) >= 1000, counts
    assert len(counts) >= 5
    differ = {
        name: [one for one in found if one[1] is None or abs(one[1] - one[2]) > 1e-9]
        for name, found in all_found.items()
    }
    assert not any(differ.values()), differ
    right = sum(one[2] > 0 for found in all_found.values() for one in found)
    assert 300 < right < 900, right  # both kinds of answers are among them
