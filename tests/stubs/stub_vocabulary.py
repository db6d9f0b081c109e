"""The words and the chat template of the vLLM that has no model (`stubs.stub_vllm`)."""

from __future__ import annotations

import json
import re
from typing import Any

END = "<|im_end|>"
_WORD = re.compile(r"<\|\w+\|>|\s+|[^\s<]+|<")


class Vocabulary:
    """Words and their tokens, in the order in which they are first seen."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._words: list[str] = []

    def text(self, ids: list[int]) -> str:
        """What tokens say."""
        return "".join(self._words[one] for one in ids)

    def tokens(self, words: list[str]) -> list[int]:
        """The tokens of words; a word that is new gets the next one."""
        for word in words:
            if word not in self._ids:
                self._ids[word] = len(self._words)
                self._words.append(word)
        return [self._ids[word] for word in words]

    def rendered(self, body: dict[str, Any]) -> list[int]:
        """The tokens of a chat request, as its ``chat_template_kwargs`` say."""
        kwargs: dict[str, Any] = body.get("chat_template_kwargs") or {}
        messages = body["messages"]
        last_user = max((at for at, one in enumerate(messages) if one["role"] == "user"), default=-1)
        text = ""
        for at, message in enumerate(messages):
            said = message.get("content") or ""
            thought = message.get("reasoning")
            if thought and not (kwargs.get("drop_thinking") and at < last_user):
                said = f"<think>{thought}</think>{said}"
            for call in message.get("tool_calls") or ():
                known = {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
                forgotten: Any = kwargs.get("forget_calls") and messages[-1]["role"] != "assistant"
                said += "(a call)" if forgotten else f"<tool_call>{json.dumps(known)}</tool_call>"
            text += f"<|im_start|>{message['role']}\n{said}{END}\n"
        if body.get("add_generation_prompt", True):
            text += "<|im_start|>assistant\n"
        return self.tokens(_WORD.findall(text))
