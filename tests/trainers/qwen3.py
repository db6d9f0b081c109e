"""Qwen3's tokenizer and chat template, out of packages of an index: no hub is asked.

The vocabulary is a file of ``dashscope``, the template one of ``trl``; neither is imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

NAME = "Qwen/Qwen3-0.6B"
NEEDED = ("renderers", "transformers", "tiktoken", "dashscope", "trl")
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_SPECIAL = (
    "endoftext im_start im_end object_ref_start object_ref_end box_start box_end quad_start quad_end"
    " vision_start vision_end vision_pad image_pad video_pad"
)
_MORE = (
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|>"
    " <|file_sep|> <tool_response> </tool_response> <think> </think>"
)


def save_tokenizer(folder: Path) -> None:
    """Into ``folder``, below which `NAME` is a path; the test is skipped where a package is missing."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        needed = "pip install 'renderers[transformers]' tiktoken dashscope, and trl with --no-deps"
        pytest.skip(f"{', '.join(missing)} not installed: {needed}")
    from tokenizers import AddedToken, normalizers
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    packages = {name: Path(str(spec.origin)).parent for name in NEEDED if (spec := find_spec(name))}
    vocabulary = str(packages["dashscope"] / "resources" / "qwen.tiktoken")
    made = TikTokenConverter(vocab_file=vocabulary, pattern=_WORDS, add_prefix_space=False).converted()
    made.normalizer = normalizers.NFC()
    special = [f"<|{name}|>" for name in _SPECIAL.split()]
    made.add_tokens([AddedToken(one, normalized=False, special=True) for one in special])
    made.add_tokens([AddedToken(one, normalized=False) for one in _MORE.split()])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>", extra_special_tokens=special
    )
    tokenizer.chat_template = (packages["trl"] / "chat_templates" / "qwen3.jinja").read_text()
    tokenizer.save_pretrained(folder / NAME)
