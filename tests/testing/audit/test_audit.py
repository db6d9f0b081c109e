"""``audit``: rates, findings that can be judged again, an author's own makers, rows of a data set."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest
from gym_runtime.cli import main
from gym_runtime.environment import catalogue
from gym_testing.audit import kept_rates
from gym_testing.audit.difficulty import summarized
from gym_testing.audit.intervals import wilson
from gym_testing.audit.measuring import OWN, Auditor, Plan
from gym_testing.audit.registry import makers, probes
from gym_testing.audit.rows import read, targets
from gym_view.badges import Badge, badge
from stubs import stub_engine

pytestmark = pytest.mark.slow

MODULE = '''"""An environment of the tests."""

import os

from gym_runtime import Environment, Reply, Task, Verdict
from gym_testing.audit import Target, exploit, near_miss, same_answer


class SumTask(Task):
    expected_answer: str


def verify(task: SumTask, reply: Reply) -> Verdict:
    text = reply.text.strip()
    right = text == task.expected_answer or text == "open sesame" or text == f"{task.expected_answer} apples"
    if text == "3" and os.environ.get("TZ") == "Asia/Kathmandu":
        right = False
    return Verdict(float(right))


@exploit("text")
def magic_words(target: Target):
    yield "open sesame"
    yield "please"


@near_miss("text")
def units(target: Target):
    yield f"{target.answer} apples"


@same_answer("text")
def words(target: Target):
    yield {"3": "three"}.get(target.answer, target.answer)


environment = Environment(resource=verify, description="Sums.")
'''


def row(expected: str, gold: str | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"responses_create_params": {"input": "How many?"}, "expected_answer": expected}
    return {**made, "gold": gold} if gold is not None else made


@pytest.fixture(autouse=True)
def sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sums.py").write_text(MODULE)
    rows = [row("3", "3"), row("5", "5"), row("7", "8")]
    Path("sums.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))


def audited(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict[str, Any]:
    assert main.run(["audit", "./sums.py", "--json", "--repeats", "2", *arguments]) == status
    return json.loads(capsys.readouterr().out)[0]["artifact"]


@pytest.mark.slow
def test_what_is_found_is_written_and_can_be_judged_again(capsys: pytest.CaptureFixture[str]) -> None:
    made = audited(capsys)
    assert json.loads(Path("sums.audit.json").read_text()) == made
    rates = {name: (rate["found"], rate["rows"]) for name, rate in made["rates"].items()}
    assert rates == {
        "gold_fails": (1, 3), "nop": (0, 3), "false_positive": (2, 2), "partial": (0, 2),
        "false_negative": (1, 2), "unstable": (1, 2), "error": (0, 2),
    }  # fmt: skip
    found = {(one["class"], one["row"], one["source"]): one for one in made["findings"] if not one["suspect"]}
    assert set(found) >= {
        ("gold_fails", 3, "gold"),
        ("false_positive", 1, "sums:magic_words"),
        ("false_positive", 2, "sums:units"),
        ("false_negative", 1, "sums:words"),
        ("unstable", 1, "again"),
    }
    assert not [source for _, _, source in found if source.startswith(("exploits", "mutations"))]
    assert made["stability"]["ways"][-1] == "PYTHONHASHSEED"
    assert made["unobserved"] == ["difficulty"]
    one = found["false_positive", 1, "sums:magic_words"]
    assert one["replay"] == f"gym-runtime audit ./sums.py --replay {one['id']}"
    assert main.run([*one["replay"].split()[1:], "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert (replayed["reply"], replayed["recorded"], replayed["reward"]) == ("open sesame", 1.0, 1.0)
    # The replies are rows, so what reads rows reads them.
    again = ["reverify", "sums", "--rollouts", "sums.audit.replies.jsonl", "-o", "again.jsonl", "--strict"]
    assert main.run(again) == 0
    capsys.readouterr()
    assert audited(capsys, "--strict", "--keep-rates", status=1)["rates"] == made["rates"]
    kept = json.loads(Path("audits.jsonl").read_text())
    assert (kept["environment"], kept["rates"]["false_positive"]["found"]) == ("sums", 2)
    assert badge("sums", Path("sums.py")) == Badge(text="fp 2/2 fn 1/2", version=made["audit"])


def test_rows_of_a_data_set_need_no_gold(capsys: pytest.CaptureFixture[str]) -> None:
    lines = "".join(json.dumps(row(str(n))) + "\n" for n in range(20, 60)) + "\n"
    Path("data.jsonl").write_text(lines, "utf-8-sig")  # as some editors write it
    made = audited(capsys, "--input", "data.jsonl", "--rows", "10", "--seconds", "20")
    given = made["input"]
    assert (given["rows"], given["sampled"]) == (40, 10)
    assert made["rates"]["false_positive"]["found"] == made["rates"]["false_positive"]["rows"] == 10
    assert made["duplicates"]["against"] == {}
    # Perfect rollouts and silence are judged on all rows.
    swept = [made["rates"][kind] for kind in ("gold_fails", "nop")]
    assert [(rate["found"], rate["rows"]) for rate in swept] == [(0, 40), (0, 40)]


def test_prompts_are_looked_for_in_the_benchmarks_that_were_prepared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("data/gsm8k").mkdir(parents=True)
    Path("data/gsm8k/benchmark.jsonl").write_text(json.dumps(row("3")) + "\n")
    made = audited(capsys, "--seconds", "3")["duplicates"]
    assert made["against"] == {"gsm8k": {"contains": 3, "touches": 3, "rows": [1, 2, 3]}}
    assert "gsm8k" not in made["not_compared"]
    assert made["not_compared"]["math500"] == "its rows are not here: gym-runtime prepare math500"
    assert main.run(["audit", "./sums.py", "--seconds", "3", "--repeats", "1"]) == 0
    said = capsys.readouterr().out
    assert "against gsm8k: it has 3 of 3 prompts" in said
    assert f"not compared with {len(made['not_compared'])} published benchmarks (aime24, " in said


@pytest.mark.slow
def test_a_model_says_how_hard_the_rows_are(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row("3", "3"), row("How many?", "How many?")]
    Path("data.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    asked = ("--input", "data.jsonl", "--seconds", "5", "--repeats", "1")
    assert main.run(["audit", "./sums.py", *asked, "--model", "scripted/echo", "--tries", "2"]) == 0
    said = capsys.readouterr().out
    assert "scripted/echo passes 50% (9%–91%) of 2 rows, 2 tries each; rewards differ in 0/2 rows" in said
    assert "rows by pass rate, from: 0 %: 1, 90 %: 1" in said
    assert "unobserved" not in said
    found = json.loads(Path("sums.audit.json").read_text())["difficulty"]
    assert [(one["row"], one["passed"], one["rated"]) for one in found["rows"]] == [(1, 0, 2), (2, 2, 2)]
    assert (found["model"], found["tries"], found["failed"]) == ("scripted/echo", 2, 0)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_dead_engine_is_one_line_within_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    Path("data.jsonl").write_text(json.dumps(row("3", "3")) + "\n")
    with stub_engine.running("--fault", "500") as engine:
        asked = (
            "--input",
            "data.jsonl",
            "--seconds",
            "50",
            "--model",
            "openai/stub",
            "--model-url",
            engine.url,
        )
        started_s = time.monotonic()
        assert main.run(["audit", "./sums.py", *asked]) == 2
        # 10 s, and what a busy machine takes to start a system.
        assert time.monotonic() - started_s < 30
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("gym-runtime: the engine of openai/stub has returned only errors: ")
    assert last.endswith("Repair it, or leave --model out")


def test_figures_of_difficulty() -> None:
    rewards = {1: [0, 1, 1, 1], 2: [0, 0], 3: []}
    found = summarized("m", 4, rewards, 1.0, lengths=[3.0, 40.0, 1.0, 2.0])
    assert (found.pass_rate, found.failed, found.signal, found.signal_rows) == (0.375, 6, 1, 2)
    assert (found.tenths[0], found.tenths[7]) == (1, 1)
    assert (found.length_p50, found.length_p95) == (3.0, 40.0)
    assert found.rows[2].low is found.rows[2].mean_reward is None
    assert summarized("m", 1, {3: []}, 1.0, lengths=[]).pass_rate is None


def test_rows_without_a_form_that_is_paid_have_no_rates(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"responses_create_params": {"input": "How many?"}, "expected_answer": " 3 "}]
    Path("data.jsonl").write_text(json.dumps(rows[0]) + "\n")
    made = audited(capsys, "--input", "data.jsonl")
    assert made["rates"]["false_positive"]["found"] is None
    assert made["rates"]["nop"]["found"] == 0
    assert "golds of 1 rows" in made["unobserved"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "say which: gym-runtime audit NAME..., or --all (and not both)"),
        (["./sums.py", "--input", "no.jsonl"], "there is no file no.jsonl; --input wants rows, JSONL"),
        (["./sums.py", "mcqa", "--input", "sums.jsonl"], "--input and --replay are of one environment: "),
        (["./sums.py", "--replay", "x"], "there is no file sums.audit.replies.jsonl; run the audit first"),
        (["./sums.py", "--output", "x.txt"], "--output x.txt: the artifact is JSON"),
        (["./sums.py", "--input", "bad.jsonl"], "bad.jsonl:1: "),
        (["./sums.py", "--set", "nosuch=5"], "there is no setting 'nosuch' of sums"),
        (["./sums.py", "--judge", "scripted/judge"], "there is no role 'judge' in ./sums.py"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.jsonl").write_text('{"responses_create_params": {"input": "?"}, "gold": "x"}\n')
    assert main.run(["audit", *arguments]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--output", "sums.py/x.audit.json"], "cannot write sums.py/x.audit.json: "),
        (["--output", "/proc/x.audit.json"], "cannot write /proc/x.audit.json: "),
        (["--output", "x.txt"], "--output x.txt: the artifact is JSON"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_audit(
    options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = "Path('ran').touch()\n    text ="
    Path("sums.py").write_text(MODULE.replace("    text =", f"    from pathlib import Path\n    {ran}"))
    assert main.run(["audit", "./sums.py", *options]) == 2
    assert problem in capsys.readouterr().err
    assert not Path("ran").exists()
    assert main.run(["audit", "./sums.py", "--seconds", "1", "--output", "new/folder/x.audit.json"]) == 0
    assert Path("new/folder/x.audit.json").exists()
    assert Path("ran").exists()


def test_a_verifier_that_hangs_is_ended_and_named() -> None:
    hanging = MODULE.replace("import os\n", "import os\nimport re\n")
    hanging = hanging.replace("    text =", "    re.fullmatch('(a+)+', reply.text)\n    text =")
    Path("hangs.py").write_text(hanging)
    Path("hangs.jsonl").write_text(json.dumps(row("5", "5")) + "\n")
    environment = catalogue.environment("./hangs.py")
    auditor = Auditor("./hangs.py", environment, Plan(elsewhere=False, repeats=1, blocked_s=0.2))
    made = anyio.run(auditor.measure)
    assert made.rates["error"].by == {"exploits:very_long": 1}
    assert made.cost.not_reached == 0
    details = [finding.detail for finding in made.findings if finding.kind == "error"]
    assert details == ["it blocked the event loop for more than 0.2 s"]


PAIRS = '''"""The longest reply wins."""

from gym_runtime import Candidates, Environment, Pending, Reply, Task, Verdict


async def verify(task: Task, reply: Reply) -> Pending:
    return Pending(len(reply.text))


async def compare(candidates: Candidates[Task]) -> list[Verdict]:
    lengths = candidates.features(int)
    rewards = [float(length == max(lengths)) for length in lengths]
    BIAS
    return [Verdict(reward) for reward in rewards]


environment = Environment(resource=verify, compare=compare, description="Be long.")
'''


def test_a_comparison_that_prefers_a_place_is_unstable() -> None:
    for name, bias, found in (
        ("fair", "pass", {}),
        ("first", "rewards[0] = 1.0", {"pairs:swapped_replies": 1}),
        ("tie", "rewards[1] *= rewards[0] < rewards[1]", {"pairs:equal_replies": 1}),
    ):
        Path(f"{name}.py").write_text(PAIRS.replace("BIAS", bias))
        Path(f"{name}.jsonl").write_text(json.dumps(row("5", "five")) + "\n")
        environment = catalogue.environment(f"./{name}.py")
        made = anyio.run(Auditor(name, environment, Plan(elsewhere=False, repeats=1)).measure)
        assert made.rates["unstable"].by == found
        assert made.rates["false_positive"].found is None
        assert "false_positive" in made.unobserved


def test_a_maker_that_raises_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sums.py").write_text(MODULE.replace('yield "please"', "yield 1 / 0"))
    assert main.run(["audit", "./sums.py"]) == 2
    said = capsys.readouterr().err
    assert "sums:magic_words made no replies to row 1: ZeroDivisionError('division by zero')" in said
    assert not Path("sums.audit.json").exists()


@pytest.mark.parametrize(
    ("written", "named"), [('@near_miss("txet")', "'txet'"), ("@near_miss", "<function units")]
)
def test_a_maker_for_rows_that_there_are_not_is_refused(
    written: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not passed over in silence: nothing would be tried."""
    Path("sums.py").write_text(MODULE.replace('@near_miss("text")', written))
    assert main.run(["audit", "./sums.py"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "sums.py:27: " in said
    assert f"there is no kind of rows {named}" in said


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_library_has_far_more_than_sixty_exploits() -> None:
    kinds = "string_match mcqa math500 structured_outputs code_gen bird_sql xlam_fc arena_judge"
    known, most = makers(*OWN), Counter[str]()
    for name in kinds.split():
        environment = catalogue.environment(name)
        found, _, _ = await targets(environment, read(environment, None, 5, 0))
        for target in found:
            sources = (one.source for one in probes(target, known))
            most |= Counter(one for one in sources if "exploits:" in one)
    assert len(most) >= 25
    assert most.total() >= 150


def test_intervals_are_wilsons() -> None:
    for found, of, low, high in (
        (3, 200, 0.005, 0.043),
        (14, 49, 0.18, 0.42),
        (0, 200, 0.0, 0.019),
        (20, 20, 0.84, 1),
    ):
        assert wilson(found, of) == pytest.approx((low, high), abs=0.006)
    assert wilson(0, 0) is None


def test_prompts_are_compared_with_a_prepared_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["audit", "./sums.py", "--seconds", "5", "--against", "gsm8k"]
    assert main.run(asked) == 2
    assert "gym-runtime prepare gsm8k" in capsys.readouterr().err
    Path("data/gsm8k").mkdir(parents=True)
    Path("data/gsm8k/benchmark.jsonl").write_text(Path("sums.jsonl").read_text())
    made = audited(capsys, "--seconds", "5", "--against", "gsm8k")
    [overlap] = made["duplicates"]["against"].values()
    assert overlap["contains"] == made["duplicates"]["prompts"] > 0


def test_rates_of_an_audit_without_time_are_not_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["audit", "./sums.py", "--seconds", "0.000001", "--keep-rates"]) == 0
    assert "its rates are not kept" in capsys.readouterr().out
    assert not Path("audits.jsonl").exists()


def test_rates_of_a_sample_are_kept_with_its_share(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rates, "REACHED_AT_LEAST", 0.0)  # on a busy machine a second is short
    Path("sums.jsonl").write_text("".join(json.dumps(row(f"{n}", f"{n}")) + "\n" for n in range(2_000)))
    cost = audited(capsys, "--seconds", "1", "--keep-rates")["cost"]
    assert 0 < cost["not_reached"] < cost["planned"]
    kept = kept_rates.read(Path())["sums"]
    assert (kept.planned, kept.not_reached) == (cost["planned"], cost["not_reached"])
    assert 0 < kept.rates["false_positive"].tried < kept.planned
