"""Calls that the tests of the gateway share."""

from __future__ import annotations

CHAT = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}


ANTHROPIC = {**CHAT, "max_tokens": 9}


RESPONSES = {"model": "policy", "input": "hi"}


ALL = [("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSES), ("/v1/messages", ANTHROPIC)]
