"""Tasks of Aviary's library: a row's own, those of the data sets, and a hub that is not there."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec
import pytest
from gym_resources.aviary_episodes import dataset_hub
from gym_resources.aviary_episodes.library_episode import chosen
from gym_runtime.environment import catalogue
from gym_runtime.errors import ResourceError, ServiceUnavailable, TaskError
from resources.aviary.library.library_runs import QUESTION, SUM, needed, row
from resources.judging import NEMO_GYM_ROWS, nemo_gym_rows
from stubs.stub_hub import stub_hub

pytestmark = pytest.mark.anyio


async def test_a_rows_own_task_is_whole_or_not_there(name: str) -> None:
    resource = needed(name)
    whole = SUM if name == "gsm8k_aviary" else QUESTION
    for field in sorted(set(whole) - {"task_idx"}):
        with pytest.raises(TaskError, match="go together"):
            resource.task(row({key: value for key, value in whole.items() if key != field}))
    with pytest.raises(TaskError):
        resource.task(row({**whole, "task_idx": -1}))


def test_rows_in_nemo_gyms_format_are_its_tasks(name: str) -> None:
    files = (NEMO_GYM_ROWS / "aviary").glob(f"{name.removesuffix('_aviary')}_example.jsonl")
    lines = [line for path in files for line in path.read_bytes().splitlines()]
    for line in [*nemo_gym_rows(name), *lines]:
        assert msgspec.structs.asdict(needed(name).task(line))["task_idx"] == json.loads(line)["task_idx"]
    assert catalogue.resolve_agent_ref(f"{name}_agent") == name


@pytest.mark.slow
def test_a_task_is_one_of_the_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed("gsm8k_aviary")
    import datasets
    from aviary.envs.gsm8k import GSM8kDataset

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    problems = [{"question": f"{n} + 1?", "answer": f"It is so.\n#### 1,00{n + 1}"} for n in range(6)]
    with TemporaryDirectory(prefix="gsm8k-") as folder:  # tmp_path says "test", which the library reads
        (Path(folder) / "train.jsonl").write_text("\n".join(json.dumps(problem) for problem in problems))

        def local(split: str) -> GSM8kDataset:
            return GSM8kDataset(split, hf_source=folder)

        found = chosen(local, "train", 0)
        assert (found.problem, found.answer, found.problem_id) == ("1 + 1?", 1002.0, "train_1")
        assert chosen(local, "val", 1).problem == "5 + 1?"
        with pytest.raises(TaskError, match="task_idx is 4; 'train' has 4 tasks"):
            chosen(local, "train", 4)


@pytest.mark.slow
async def test_data_that_cannot_be_had_are_a_failure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = needed(name)
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", "/nonexistent")
    with pytest.raises(ResourceError, match=r"hotpot_qa|gsm8k") as raised:
        await resource.open(row({"task_idx": 0}))
    assert raised.value.stage == "open"


@pytest.mark.slow
async def test_a_hub_that_is_not_there_is_a_failure_within_seconds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the two minutes for which the library would ask again, and again; its cache still counts."""
    resource = needed(name)
    import datasets
    from huggingface_hub import constants

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", place)
        monkeypatch.setattr(dataset_hub, "TRY_S", 0.3)
        for _ in range(2):
            with anyio.fail_after(15), pytest.raises(ServiceUnavailable, match=place) as raised:
                await resource.open(row({"task_idx": 0}))
            assert (raised.value.stage, raised.value.retryable) == ("open", True)
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):  # it was asked once
            silent.accept()
    assert not datasets.config.HF_HUB_OFFLINE
    assert not constants.is_offline_mode()


def test_whatever_a_hub_answers_it_is_there() -> None:
    with stub_hub() as there:
        assert dataset_hub.is_there(there.url)
    assert not dataset_hub.is_there(there.url)
    assert not dataset_hub.is_there("http://no-such-host.invalid")
