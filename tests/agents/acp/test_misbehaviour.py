"""What a program of the protocol may do wrong: each rollout fails or is judged, and none hangs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents.acp.speakers import BY_HAND, PLAIN, play, row
from gym_agents import _acp_connection, acp
from gym_agents.acp import Agent as Acp
from gym_agents.acp import failure_in
from gym_faces.dialects import responses_api
from gym_runtime import TaskError
from gym_runtime.adapters import ModelAnswer
from gym_runtime.messages.outcomes import Completed, Failed, Outcome, Truncated
from gym_testing.small_system import Engine, answer
from time_limits import busy

pytestmark = pytest.mark.anyio

WITHIN_S = 10.0
ENDS = "answer(asked, stopReason='end_turn')\n"
TURN = "begin()\nasked = prompted()\nask(asked)\n"

FAILED = {
    "no answer at all": ("time.sleep(60)", "has not begun a session within 1 s"),
    "no answer to a prompt": (TURN + "time.sleep(60)", "took longer than"),
    "an answer to a request that was not made": (
        TURN + "asked['id'] = 99\n" + ENDS + "time.sleep(60)",
        "answers a request that was not made",
    ),
    "a line without an end": (
        TURN + "while True: sys.stdout.write('x' * 65536)",
        "a line of more than 32 MiB",
    ),
    "more requests than it reads answers of": (
        TURN + "while True: write(id=1, method='session/request_permission', params={'options': []})",
        "does not read",
    ),
    "an id of megabytes": (
        TURN + "write(id='x' * 3000000, method='fs/read_text_file', params={})\ntime.sleep(60)",
        "id is too long",
    ),
    "its end in a turn": (TURN + "sys.exit('I broke')", "has ended with status 1: I broke"),
    "its end without an error": (TURN, "has ended with status 0: without a word"),
    "its death": (TURN + "os.kill(os.getpid(), 9)", "has ended with status -9"),
    "a closed output": (TURN + "os.close(1)\ntime.sleep(60)", "has closed its standard output"),
    "an error in metadata": (
        TURN + "answer(asked, stopReason='end_turn', _meta={'x': {'sessionFailure': "
        "{'severity': 'error', 'title': 'the key is dead'}}})",
        "ended its turn with an error: the key is dead",
    ),
    "an error": (
        TURN + "write(id=asked['id'], error={'code': -32000, 'message': 'Log in\\x1b[2J.', 'data': [1]})",
        "answers with error -32000: Log in\\x1b[2J. ([1])",
    ),
    "an error of another form": (
        TURN + "write(id=asked['id'], error='no')",
        "in another form than JSON-RPC's",
    ),
    "a turn without the model": ("begin()\nasked = prompted()\n" + ENDS, "asked the model nothing"),
    "a second turn without the model": (
        TURN + ENDS + "asked = prompted()\n" + ENDS,
        "asked the model nothing",
    ),
    "a cancellation of its own": (
        TURN + "answer(asked, stopReason='cancelled')",
        "by itself with 'cancelled'",
    ),
    "a reason that there is not": (TURN + "answer(asked, stopReason='done')", "by itself with 'done'"),
    "no reason": (TURN + "answer(asked)", "answers session/prompt with something else"),
    "another version": ("begin(2)\ntime.sleep(60)", "speaks version 2"),
    "no session": ("answer(read(), protocolVersion=1)\nanswer(read())\ntime.sleep(60)", "session/new with"),
}
BESIDE = {
    "a line of 2 MB": "update('x' * 2_000_000)\n",
    "thousands of permissions": (
        "for number in range(1000):\n"
        "    write(id=number, method='session/request_permission', params={'options': []})\n"
        "    assert read()['result'] == {'outcome': {'outcome': 'cancelled'}}\n"
    ),
    "text that is not the protocol's": "print('Welcome!\\n\\n[1]\\n{]\\n' + '[' * 100000)\n",
    "bytes that are no text": "sys.stdout.buffer.write(b'\\xff\\xfe\\x00\\n')\n",
    "a flood of errors": "sys.stderr.write('x' * 50_000_000)\n",
    "a late answer": "answer({'id': 0}, protocolVersion=1)\nanswer({'id': 1}, sessionId='two')\n",
    "requests that are not offered": (
        "for method in ('fs/read_text_file', 'terminal/create', 'elicitation/create', 'mine/own'):\n"
        "    write(id=method, method=method, params={'path': '/etc/passwd'})\n"
        "    got = read()\n"
        "    assert (got['id'], got['error']['code']) == (method, -32601), got\n"
        "write(id=None, method='session/request_permission', params=[1])\n"
        "assert read()['error']['code'] == -32602\n"
    ),
    "notifications that are not known": "write(method='mine/own', params=None)\n",
    "a warning in metadata": "asked['more'] = 1\n",
}
CUT = {"max_tokens": "max_output_tokens", "max_turn_requests": "max_turn_requests", "refusal": "refusal"}


async def played(agent: Acp, engine: Engine, **more: Any) -> tuple[Outcome, float | None, int]:
    with anyio.fail_after(WITHIN_S * busy()):
        record = await play(agent, engine, max_attempts=1, timeout_s=4.0 * busy(), **more)
    return record.outcome, record.reward, record.turns


@pytest.mark.slow
@pytest.mark.parametrize("case", FAILED)
async def test_it_fails(case: str, speaker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program, complaint = FAILED[case]
    monkeypatch.setattr(acp, "START_S", 1.0 if "no answer at all" in case else 30.0)
    more = {"environment": "guessing", "steps": True} if "second" in case else {}
    outcome, reward, _ = await played(speaker(BY_HAND + program), Engine(answer("50")), **more)
    assert isinstance(outcome, Failed)
    assert reward is None
    assert complaint in outcome.fault.message


@pytest.mark.slow
async def test_a_turn_that_ends_after_a_request_that_was_refused(speaker: Any) -> None:
    program = (
        BY_HAND
        + TURN
        + """
import urllib.error
try:
    ask(asked)
except urllib.error.HTTPError:
    answer(asked, stopReason="end_turn")
"""
    )
    outcome, reward, _ = await played(speaker(program), Engine(answer("done"), TaskError("no such file")))
    assert isinstance(outcome, Failed)
    assert reward is None
    assert "after a request that was refused: no such file" in outcome.fault.message


@pytest.mark.slow
@pytest.mark.parametrize(
    "end",
    [
        "answer(asked, stopReason='end_turn')",
        "write(id=asked['id'], error={'code': -32000, 'message': 'the prompt is too long'})",
        "sys.exit('the prompt is too long')",
    ],
)
async def test_a_conversation_that_is_too_long(end: str, speaker: Any) -> None:
    program = BY_HAND + TURN + f"import urllib.error\ntry: ask(asked)\nexcept urllib.error.HTTPError: {end}\n"
    overflow = ModelAnswer(response=responses_api.overflow("m"))
    outcome, reward, turns = await played(speaker(program), Engine(answer("done"), overflow))
    assert (outcome, reward, turns) == (Truncated(reason="max_output_tokens"), 1.0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("case", BESIDE)
async def test_it_does_no_harm(case: str, speaker: Any) -> None:
    """Beside two turns, within them and after them, where it comes late."""
    metadata = ", _meta={'a': {'failure': {'severity': 'warning'}, 'error': None}}"
    end = ENDS.replace(")", metadata + ")") if "metadata" in case else ENDS
    turn = BESIDE[case] + "ask(asked)\n" + BESIDE[case] + end
    program = "begin()\nasked = prompted()\n" + turn + "update()\nasked = prompted()\n" + turn + "update()\n"
    engine = Engine(answer("50"), answer("37"))
    agent = speaker(BY_HAND + program + "time.sleep(60)")
    assert await played(agent, engine, environment="guessing", steps=True) == (Completed(), 1.0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("reason", CUT)
async def test_it_is_judged_as_it_stands(reason: str, speaker: Any) -> None:
    program = BY_HAND + TURN + f"answer(asked, stopReason='{reason}')"
    found = await played(speaker(program), Engine(answer("done")))
    assert found == (Truncated(reason=CUT[reason]), 1.0, 1)


@pytest.mark.slow
async def test_one_that_does_not_end_when_it_is_told(speaker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_acp_connection, "CANCEL_S", 0.5)
    program = (
        BY_HAND
        + TURN
        + """
try:
    ask(asked)
except Exception:
    while True:
        update()
"""
    )
    begun_s = time.monotonic()
    found = await played(speaker(program), Engine(answer("done")), max_turns=1)
    assert found == (Truncated(reason="max_turns"), 1.0, 1)
    assert time.monotonic() - begun_s < 4.0 * busy()


async def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    path = tmp_path / "speaker"
    path.write_text("#!/no/such/interpreter")
    path.chmod(0o755)
    agent = type("Agent", (Acp,), {"command": (str(path),)})()
    outcome, _, _ = await played(agent, Engine(answer("done")))
    assert isinstance(outcome, Failed)
    assert f"{path} cannot be started" in outcome.fault.message


@pytest.mark.slow
async def test_one_that_dies_is_started_again(speaker: Any) -> None:
    """What was killed had no say in it; one that broke the protocol does so again."""
    for end, attempts in (("os.kill(os.getpid(), 9)", 3), ("sys.exit(3)", 1)):
        engine = Engine(answer("done"))
        record = await play(speaker(BY_HAND + TURN + end), engine, timeout_s=20.0)
        assert isinstance(record.outcome, Failed)
        assert (record.attempt, len(engine.calls.items)) == (attempts, 1), "nothing is asked twice"


async def test_what_the_row_cannot_be_prompted_with(speaker: Any) -> None:
    begun = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    for items, complaint in ((begun, "has begun"), ([], "nothing to prompt")):
        with anyio.fail_after(WITHIN_S * busy()):
            record = await play(speaker(PLAIN), Engine(answer("done")), row(input=items))
        assert isinstance(record.outcome, Failed)
        assert (record.outcome.fault.kind, record.reward) == ("task", None)
        assert complaint in record.outcome.fault.message


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        (None, None),
        ([], None),
        ({"error": ""}, None),
        ({"error": {"code": 1}}, '{"code":1}'),
        ({"a": {"failed": True}}, '{"failed":true}'),
        ({"a": {"failed": False, "isError": "no"}}, None),
        ({"a": {"failure": {"severity": "info", "title": "x"}}}, None),
        ({"a": {"b": {"c": {"d": {"e": {"error": "deep"}}}}}}, "deep"),
        ({"a": {"b": {"c": {"d": {"e": {"f": {"error": "deeper"}}}}}}}, None),
    ],
)
def test_failures_in_metadata(meta: Any, words: str | None) -> None:
    assert failure_in(meta) == words
    assert failure_in(json.loads(json.dumps({"outer": meta}))) == words or "deep" in str(meta)
