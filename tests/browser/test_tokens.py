"""What was sampled, as text that is coloured by probability."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser.chromium import Chromium
from browser.test_pages import opened, to
from gym_view.vocabulary import Vocabulary
from view.test_vocabulary import write_tokenizer

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]
TOKENS = "[...document.querySelectorAll('.stream .token')].map((e) => [e.innerText, e.className])"


async def test_tokens_are_text_coloured_by_probability(chromium: Chromium, tmp_path: Path) -> None:
    said = [("It", -0.01), (" is", -0.5), (" <b>", -6.0)]
    logprobs = [
        {"token": token, "logprob": logprob, "top_logprobs": [{"token": " was", "logprob": -2.3}]}
        for token, logprob in said
    ]
    part = {"type": "output_text", "text": "It is <b>", "logprobs": logprobs}
    for name, more in (("hosted", {}), ("ours", {"generation_token_ids": [5, 6, 7]})):
        message = {"type": "message", "role": "assistant", "content": [part], **more}
        row = {"responses_create_params": {"input": "x"}, "response": {"output": [message]}, "reward": 1}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    async with opened(chromium, tmp_path) as page:
        for name in ("hosted", "ours"):
            await to(page, f"#/run/{name}/rollouts/0.0?tab=tokens", "document.querySelector('.stream.texts')")
            assert await page.text(".stream") == "It is <b>"
            steps = "[...document.querySelectorAll('.stream .token')].map((e) => e.className)"
            assert await page.eval(steps) == ["token p0", "token p1", "token p5"]
            title = await page.eval("document.querySelectorAll('.stream .token')[1].title")
            assert "probability 0.607" in title
            assert 'others: " was" 0.10' in title


async def test_ids_without_texts_stand_below_what_they_say(chromium: Chromium, tmp_path: Path) -> None:
    logprobs = {"generation_token_ids": [7, 5, 9], "generation_log_probs": [-0.01, -0.5, -6.0]}
    message = {"type": "message", "role": "assistant", "content": "It é <b>", **logprobs}
    row = {"responses_create_params": {"input": "x"}, "response": {"output": [message]}, "reward": 1}
    (tmp_path / "ids.jsonl").write_text(json.dumps(row) + "\n")
    where = "#/run/ids/rollouts/0.0?tab=tokens"
    async with opened(chromium, tmp_path) as page:
        await to(page, where, "document.querySelector('.stream .token')")
        assert await page.eval(TOKENS) == [["7", "token p0"], ["5", "token p1"], ["9", "token p5"]]
        assert await page.text(".tokens .whole") == "It é <b>"
        assert "--tokenizer" in await page.text(".tokens")
    vocabulary = Vocabulary(write_tokenizer(tmp_path / "tokenizer.json", {"It": 7, "ĠÃ©": 5, "Ġ<b>": 9}))
    async with opened(chromium, tmp_path / "ids.jsonl", vocabulary=vocabulary) as page:
        await to(page, where, "document.querySelector('.stream.texts')")
        assert await page.text(".stream") == "It é <b>"
        assert await page.eval("document.querySelector('.tokens .whole')") is None


async def test_the_texts_of_a_call_may_be_on_another_item_than_its_ids(
    chromium: Chromium, tmp_path: Path
) -> None:
    said = [{"token": "Look", "logprob": -0.1}, {"token": "<call>", "logprob": -0.2}]
    ids = [{"token": f"token_id:{number}", "logprob": -0.25} for number in (8, 9)]
    numbers = {"generation_token_ids": [1, 2], "generation_log_probs": [-0.1, -0.2]}
    call = {"type": "function_call", "name": "look", "call_id": "c", "arguments": "{}", **numbers}
    output = [
        {"type": "message", "role": "assistant", "content": [{"text": "Look", "logprobs": said}]},
        call,
        {"type": "function_call_output", "call_id": "c", "output": "a lamp"},
        {"type": "message", "role": "assistant", "content": [{"text": "A lamp", "logprobs": ids}]},
    ]
    row = {"responses_create_params": {"input": "x"}, "response": {"output": output}, "reward": 1}
    (tmp_path / "two.jsonl").write_text(json.dumps(row) + "\n")
    async with opened(chromium, tmp_path) as page:
        await to(page, "#/run/two/rollouts/0.0?tab=tokens", "document.querySelector('.stream .token')")
        assert await page.eval("document.querySelectorAll('.tokens section').length") == 2
        shown = [text for text, _ in await page.eval(TOKENS)]
        assert shown == ["Look", "<call>", "8", "9"]
