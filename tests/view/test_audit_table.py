"""What the page shows of an audit: of any document, and nothing of what is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from gym_runtime.errors import UsageError
from gym_view.audit_table import audit_table
from gym_view.run_files import describe, find_runs

DOCUMENT = """{"environment": "mine", "environment_sha256": "", "runtime": "1", "audit": "2026.11",
"made": "today", "judged": 7, "stability": {"replies": 0, "repeats": 0, "ways": []}, "findings": [],
"unobserved": [], "cost": {"seconds": 1.0, "verifications": 90},
"input": {"name": "rows.jsonl", "rows": 90, "sha256": "", "sampled": 50, "seed": 0},
"rates": {"nop": {"rows": 90, "found": 0, "low": 0.0, "high": 0.041, "tried": 90}},
"difficulty": {"model": "openai/m", "tries": 8, "failed": 1, "signal": 20,
"signal_rows": 50, "signal_low": 0.276, "signal_high": 0.538, "tenths": [30, 0, 0, 0, 0, 0, 0, 0, 0, 20],
"pass_rate": 0.4, "low": 0.276, "high": 0.538, "length_p50": 1200.0, "length_p95": 4000.0, "rows": []},
"duplicates": {"prompts": 90, "within": 2, "pairs": [[1, 2]],
"against": {"gsm8k": {"contains": 3, "touches": 5, "rows": [1]}},
"not_compared": {"math500": "it is not here"}}}"""


def test_an_audit_is_opened_by_its_document(tmp_path: Path) -> None:
    document, replies = tmp_path / "mine.audit.json", tmp_path / "mine.audit.replies.jsonl"
    document.write_text(DOCUMENT)
    with pytest.raises(UsageError, match=r"mine\.audit\.replies\.jsonl are not there"):
        find_runs([document])
    replies.touch()  # nothing was found
    [run] = find_runs([document])
    assert (run.rollouts, [one.rollouts for one in find_runs([tmp_path])]) == (replies, [replies])
    found = describe(run)["audit"]
    assert found["rows"] == [["nop", "0 of 90", "0.0%", "0.0% to 4.1%", "90", "0"]]
    assert found["notes"] == [
        "50 of 90 rows of rows.jsonl; replies of version 2026.11",
        "made today",
        "7 replies were decided by a model in a role: nothing is said of them",
        "near-duplicates: 2 of 90 prompts, such as rows 1 and 2",
        "against gsm8k: it has 3 of 90 prompts, 5 touch it: rows 1",
        "not compared with 1 published benchmarks (math500): 'gym-runtime prepare NAME' fetches one; "
        "the artifact says why",
        "openai/m passes 40% (28%–54%) of 0 rows, 8 tries each; rewards differ in 20/50 rows (28%–54%); "
        "half write at most 1,200 tokens, 95 % at most 4,000; 1 rollouts failed",
        "rows by pass rate, from: 0 %: 30, 90 %: 20",
    ]


@pytest.mark.parametrize("document", ["", "[]", "{}", DOCUMENT.replace('"mine"', "1"), '{"a":' * 5000])
def test_no_table_of_what_is_no_audit(tmp_path: Path, document: str) -> None:
    (tmp_path / "mine.audit.json").write_text(document)
    assert audit_table(tmp_path / "mine.audit.replies.jsonl") is None
    assert audit_table(tmp_path / "mine.jsonl") is None
