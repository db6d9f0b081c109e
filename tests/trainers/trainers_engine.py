"""A trainer's engine whose texts a test decides, and a tokenizer of bytes with a chat template.

The tokenizer is Hugging Face's where it is installed, as trainers have it, else one of our own that renders
and decodes the same.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
from gym_trainers.rollout_source import RolloutSource
from gym_trainers.token_engine import Sampled, TokenEngine

COUNTER = "example_session_state_mgmt"
COUNT = {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}, "required": ["count"]}
INCREMENT = {"type": "function", "name": "increment_counter", "description": "Adds.", "parameters": COUNT}
CALL = '<tool_call>{"name": "increment_counter", "arguments": {"count": 1}}</tool_call>'
START, END = "<|im_start|>", "<|im_end|>"
START_ID, END_ID = 256, 257
TEMPLATE = (
    "{%- if note is defined %}{{ note }}{% endif %}"
    "{%- if tools %}{{ '<|im_start|>system\\n' }}"
    "{%- for tool in tools %}{{ tool.function.name }} {% endfor %}{{ '<|im_end|>\\n' }}{% endif %}"
    "{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content }}"
    "{%- for call in message.tool_calls or [] %}"
    "{{ '<tool_call>' + call.function.name + (call.function.arguments | tojson) + '</tool_call>' }}"
    "{%- endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


CHOICE: dict[str, Any] = {
    "agent_ref": {"name": "mcqa"},
    "responses_create_params": {"input": "Answer with \\boxed{B}."},
    "options": [{"A": "no"}, {"B": "yes"}],
    "expected_answer": "B",
    "grading_mode": "strict_single_letter_boxed",
}


def counter_row(expected: int = 4, **more: Any) -> dict[str, Any]:
    """A row of `COUNTER`: from 3 to ``expected``; one call of the tool makes it 4."""
    params = {"input": "Count.", "tools": [INCREMENT]}
    row = {"responses_create_params": params, "initial_count": 3, "expected_count": expected}
    return {"agent_ref": {"name": COUNTER}, **row, **more}


class ByteTokenizer:
    """Bytes as tokens, with two special ones."""

    eos_token_id = END_ID
    all_special_tokens = (START, END)
    all_special_ids = (START_ID, END_ID)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        while text:
            for special, name in ((START, START_ID), (END, END_ID)):
                if text.startswith(special):
                    ids.append(name)
                    text = text.removeprefix(special)
                    break
            else:
                ids += text[0].encode()
                text = text[1:]
        return ids

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        specials = {START_ID: START, END_ID: END}
        text = b""
        for one in ids:
            text += bytes([one]) if one < START_ID else b"" if skip_special_tokens else specials[one].encode()
        return text.decode(errors="replace")

    def apply_chat_template(
        self, messages: Any, *, tools: Any = None, add_generation_prompt: bool = False, **more: Any
    ) -> list[int]:
        from jinja2 import Environment

        template = Environment().from_string(more.pop("chat_template", TEMPLATE))
        given = {"tools": tools, "add_generation_prompt": add_generation_prompt, **more}
        return self.encode(template.render(messages=messages, **given))


def byte_tokenizer(folder: Path | None = None) -> Any:
    """The tokenizer; of Hugging Face it is also saved to a folder."""
    if find_spec("transformers") is None:
        return ByteTokenizer()
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(START, special=True), AddedToken(END, special=True)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, pad_token=START)
    tokenizer.chat_template = TEMPLATE
    if folder is not None:
        tokenizer.save_pretrained(folder)
    return tokenizer


class TurnEngine:
    """Samples the text that it is told, and then the end token.

    Attributes:
        seen: each prompt and what was sampled, in order.
        params: the sampling parameters of each call.
        failing: how many of the next calls raise.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.seen: list[tuple[list[int], list[int]]] = []
        self.params: list[dict[str, Any]] = []
        self.failing = 0
        self._tokenizer = tokenizer

    def sample(self, prompt: list[int], params: dict[str, Any], text: str) -> list[int]:
        """The ids of the text, cut at ``max_tokens``."""
        if self.failing:
            self.failing -= 1
            raise RuntimeError("the GPU is on fire")
        ids = [*self._tokenizer.encode(text), END_ID][: params["max_tokens"]]
        self.seen.append((prompt, ids))
        self.params.append(params)
        return ids

    def count_up(self, prompt: list[int], params: dict[str, Any]) -> list[int]:
        """Calls the counter's tool, and ends in the next turn."""
        first = CALL not in self._tokenizer.decode(prompt)
        return self.sample(prompt, params, CALL if first else "Done.")

    @staticmethod
    def log_probs(ids: list[int]) -> list[float]:
        """Its own number for each token."""
        return [-1 / (1 + one) for one in ids]


def experts_of(ids: list[int], experts: int = 256) -> Any:
    """Experts of each token but the last, which tell the token and its place: 2 layers, 3 of each."""
    import numpy as np

    rows = [[(place * 6 + 31 * one + slot) % experts for slot in range(6)] for place, one in enumerate(ids)]
    return np.array(rows[:-1], "u1" if experts <= 256 else "<u2").reshape(-1, 2, 3)


class Servers:
    """verl's LLMServerClient around an engine of a test; `step` is the version of the weights.

    Args:
        experts: how many its model has; 0 for an engine that does not tell them.
    """

    def __init__(self, experts: int = 0) -> None:
        self.experts = experts
        self.tokenizer = byte_tokenizer()
        self.engine = TurnEngine(self.tokenizer)
        self.step = 3
        self.aborting = 0

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Any) -> Any:
        if self.aborting:
            self.aborting -= 1
            fields = {"global_steps": self.step}
            return SimpleNamespace(token_ids=[], log_probs=None, stop_reason="aborted", extra_fields=fields)
        ids = self.engine.count_up(prompt_ids, sampling_params)
        step, self.step = self.step, self.step + 1
        log_probs = self.engine.log_probs(ids) if sampling_params["logprobs"] else None
        return SimpleNamespace(
            token_ids=ids,
            log_probs=log_probs,
            stop_reason="completed",
            routed_experts=experts_of([*prompt_ids, *ids], self.experts) if self.experts else None,
            extra_fields={"global_steps": step, "min_global_steps": step, "max_global_steps": step},
        )


def rows_text(*rows: dict[str, Any]) -> list[str]:
    return [json.dumps(row) for row in rows]


class GatedEngine:
    """Says that it is asked, and answers when the test says so."""

    def __init__(self) -> None:
        self.tokenizer = ByteTokenizer()
        self.asked, self.opened = anyio.Event(), anyio.Event()
        self._engine = TurnEngine(self.tokenizer)
        self._texts = [CALL, "Done."]

    async def generate(self, prompt: list[int], sampling: dict[str, Any], rollout: str) -> Sampled:
        self.asked.set()
        await self.opened.wait()
        ids = self._engine.sample(prompt, sampling, self._texts.pop(0))
        return Sampled(ids, self._engine.log_probs(ids))

    def source(self, nats: str = "") -> RolloutSource:
        return RolloutSource(TokenEngine(self.tokenizer, self.generate, context=1000), nats=nats)
