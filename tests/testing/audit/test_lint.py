"""What in a verifier's source is to be looked at; ``test`` and ``audit`` say it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gym_runtime.cli import main
from gym_testing.audit.lint import places

CASES = {
    "return 1.0 if task.answer in reply.text.lower() else 0.0": "only contains it passes",
    "said = reply.text.strip()\n    return Verdict(float(task.answer in said))": "only contains it passes",
    "found = search(reply.text) or reply.text": "the whole reply is taken",
    "try:\n        return f()\n    except Exception:\n        return Verdict(1.0)": "any error passes",
    "try:\n        return f()\n    except ValueError:\n        return True": "a caught error passes",
    "if a:\n        return 0.0\n    return 1.0": "what no rule before it knows passes",
    "return all(x == y for x, y in zip(a, b))": "zip ends with the shorter one",
    "eval(reply.text)": "eval() runs what a model wrote",
}
SOUND = (
    "return task.answer == reply.text.strip()",
    "found = search(reply.text) or None",
    "try:\n        return f()\n    except ValueError:\n        return False",
    "return all(x == y for x, y in zip(a, b, strict=True))",
    "return 1.0",
)


@pytest.mark.parametrize("body", [*CASES, *SOUND])
def test_places_to_look_at(body: str, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(f"async def verify(task, reply):\n    {body}\n")
    found = places(module)
    if body in CASES:
        [place] = found
        assert CASES[body] in place.problem
        assert place.line > 1
    else:
        assert found == []


def test_what_cannot_be_parsed_has_no_places(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("def (")
    assert places(tmp_path / "module.py") == places(tmp_path / "none.py") == []


@pytest.mark.slow
def test_a_weak_rule_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["new", "sums", "--shape", "verify"]) == 0
    assert main.run(["test", "sums", "--json"]) == 0
    said = capsys.readouterr().out
    findings = json.loads(said[said.index("[") :])[0]["findings"]
    assert not [finding for finding in findings if finding["warning"]]
    weak = Path("sums.py").read_text().replace("said == task.expected", "said in (12, 13)")
    Path("weak.py").write_text(weak)
    Path("weak.jsonl").write_text(5 * f"{Path('sums.jsonl').read_text().splitlines()[0]}\n")
    assert main.run(["test", "weak", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)[0]["findings"]
    [warning] = [finding for finding in findings if finding["warning"]]
    assert warning["rule"] == "wrong replies are not paid for"
    assert "weak:off_by_one" in warning["detail"]
