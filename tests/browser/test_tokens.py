"""What was sampled, as text that is coloured by probability."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser.chromium import Chromium
from browser.test_pages import opened, to

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]


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
