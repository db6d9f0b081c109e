"""`prepare` of a benchmark: rows made of published records, with the published prompt or another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from data.prepare_command.prepared import Prepare, read
from stubs.stub_hub import StubHub

MODULE = '''"""A benchmark."""
from gym_runtime import Benchmark, DatasetSource, Environment, Reply, Task, Verdict


class SumsTask(Task):
    result: int


async def verify(task: SumsTask, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == str(task.result)))


def rows(sums, results):
    known = {one["id"]: one["result"] for one in results}
    for one in sums:
        yield {"sum": one["sum"], "result": int(known[one["id"]])}


environment = Environment(
    resource=verify, description="Sums.", repeats=3,
    benchmark=Benchmark(
        prompt="What is {sum}? Use {{}}.", system="Be exact.",
        score=lambda rollouts: {"accuracy": 100 * sum(one.reward for one in rollouts) / len(rollouts)},
    ),
    datasets=(
        DatasetSource(
            repo_id="someone/sums", file="sums.jsonl", further_files=("results.csv",), split="benchmark",
            license="MIT", rows=rows,
        ),
    ),
)
'''
SUMS = b'{"id": "a", "sum": "1 + 2"}\n{"id": "b", "sum": "2 + 2"}\n'
RESULTS = b"id,result\na,3\nb,4\n"
ROWS = [{"sum": "1 + 2", "result": 3}, {"sum": "2 + 2", "result": 4}]


@pytest.fixture
def sums(environment_folder: Path, hub: StubHub) -> str:
    """The benchmark ``sums_bench`` and its data on a hub; the commit of the data."""
    (environment_folder / "sums_bench.py").write_text(MODULE)
    return hub.commit("someone/sums", {"sums.jsonl": SUMS, "results.csv": RESULTS})


def test_the_rows_have_the_published_prompt_and_come_from_one_commit(
    prepare: Prepare, sums: str, hub: StubHub
) -> None:
    status, said = prepare("sums_bench")
    assert (status, said.splitlines()[0]) == (0, "benchmark  2 rows (2 sums_bench)")
    rows = read("data/sums_bench/benchmark.jsonl")
    assert [{name: one[name] for name in ("sum", "result")} for one in rows] == ROWS
    assert rows[0]["responses_create_params"]["input"] == [
        {"role": "system", "content": "Be exact."},
        {"role": "user", "content": "What is 1 + 2? Use {}."},
    ]
    assert rows[0]["agent_ref"]["name"] == "sums_bench"
    [entry] = json.loads(Path("data/sums_bench/sources.json").read_text())["benchmark"]
    assert (entry["commit"], entry["file"], entry["license"]) == (sums, "sums.jsonl", "MIT")
    hub.commit("someone/sums", {"sums.jsonl": b"", "results.csv": b""})
    assert prepare("sums_bench")[0] == 0
    assert len(read("data/sums_bench/benchmark.jsonl")) == 2

    Path("own.toml").write_text('user = "{sum} = "\n')
    assert prepare("sums_bench", "--prompt", "own.toml", "-o", "own")[0] == 2  # the branch holds nothing now
    Path("own").mkdir()
    Path("own/sources.json").write_bytes(Path("data/sums_bench/sources.json").read_bytes())
    assert prepare("sums_bench", "--prompt", "own.toml", "-o", "own")[0] == 0
    [first, _] = read("own/benchmark.jsonl")
    assert first["responses_create_params"]["input"] == [{"role": "user", "content": "1 + 2 = "}]


def test_a_record_of_which_no_row_can_be_made_is_named(prepare: Prepare, sums: str, hub: StubHub) -> None:
    hub.commit("someone/sums", {"sums.jsonl": SUMS, "results.csv": b"id,result\na,3\nb,four\n"})
    status, said = prepare("sums_bench")
    assert status == 2
    assert "record 2 of sums.jsonl, record 2 of results.csv: no row can be made of it: ValueError" in said
    assert not Path("data").exists()


def test_a_benchmark_and_another_environment_have_no_common_split(prepare: Prepare, sums: str) -> None:
    status, said = prepare("sums_bench", "apples_env")
    assert (status, "no public train data is known for 'sums_bench'" in said) == (2, True)


def test_the_records_may_be_those_of_an_installed_package(
    prepare: Prepare, environment_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = MODULE.replace('repo_id="someone/sums",', 'repo_id="own-sums", installed=True,')
    (environment_folder / "sums_bench.py").write_text(module)
    status, said = prepare("sums_bench")
    assert (status, "pip install --no-deps own-sums" in said) == (2, True)
    package = tmp_path / "package"
    described = package / "own_sums-1.2.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: own-sums\nVersion: 1.2\n")
    (package / "sums.jsonl").write_bytes(SUMS)
    (package / "results.csv").write_bytes(RESULTS)
    monkeypatch.syspath_prepend(package)
    for _ in range(2):
        assert prepare("sums_bench")[0] == 0
    rows = read("data/sums_bench/benchmark.jsonl")
    assert [{name: one[name] for name in ("sum", "result")} for one in rows] == ROWS
    [entry] = json.loads(Path("data/sums_bench/sources.json").read_text())["benchmark"]
    assert (entry["package"], entry["version"]) == ("own-sums", "1.2")


def test_another_prompt_keeps_the_benchmarks_image(
    prepare: Prepare, environment_folder: Path, hub: StubHub
) -> None:
    module = MODULE.replace('system="Be exact.",', 'image="picture",').replace(
        '"result": int(known[one["id"]])}', '"result": int(known[one["id"]]), "picture": "data:,x"}'
    )
    (environment_folder / "sums_bench.py").write_text(module)
    hub.commit("someone/sums", {"sums.jsonl": SUMS, "results.csv": RESULTS})
    Path("own.toml").write_text('user = "{sum} = "\n')
    assert prepare("sums_bench", "--prompt", "own.toml")[0] == 0
    [first, _] = read("data/sums_bench/benchmark.jsonl")
    text, image = first["responses_create_params"]["input"][0]["content"]
    assert (text["text"], image["image_url"]) == ("1 + 2 = ", "data:,x")


def test_records_of_another_repository_come_last_and_from_a_commit_of_their_own(
    prepare: Prepare, environment_folder: Path, hub: StubHub
) -> None:
    other = 'DatasetSource(repo_id="other/results", file="results.csv", split="benchmark", license="CC0")'
    module = MODULE.replace('further_files=("results.csv",)', f"further_sources=({other},)")
    (environment_folder / "sums_bench.py").write_text(module)
    own = hub.commit("someone/sums", {"sums.jsonl": SUMS})
    theirs = hub.commit("other/results", {"results.csv": RESULTS})
    assert prepare("sums_bench")[0] == 0
    hub.commit("other/results", {"results.csv": b"id,result\na,0\nb,0\n"})
    assert prepare("sums_bench")[0] == 0
    rows = read("data/sums_bench/benchmark.jsonl")
    assert [one["result"] for one in rows] == [3, 4]
    [entry] = json.loads(Path("data/sums_bench/sources.json").read_text())["benchmark"]
    [further] = entry["further"]
    assert (entry["commit"], further["commit"], further["license"]) == (own, theirs, "CC0")
