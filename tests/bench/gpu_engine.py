"""The vLLM server of `one_gpu.py`, the models that it serves, and how busy it is."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import torch
from gym_models.vllm_engine.output_layer import EXTENSION
from gym_runtime.adapters import ModelSettings
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

START_S = 300.0
SHAPES = {"1.7b": (2048, 8192, 24, 32, 32), "0.4b": (960, 2560, 32, 15, 5)}
"""Hidden and intermediate size, layers, heads, heads of keys and values: those of SmolLM2-1.7B and 360M."""
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def weights(shape: str) -> str:
    """A folder with SmolLM2-135M, or a random model of this shape with its tokenizer."""
    from served_models import smollm2_folder

    real = smollm2_folder()
    if not shape:
        return str(real)
    made = real.with_name(f"random-{shape}")
    if not (made / "config.json").exists():
        hidden, wide, layers, heads, kv_heads = SHAPES[shape]
        tokenizer = AutoTokenizer.from_pretrained(real)
        torch.manual_seed(0)
        with torch.device(DEVICE):
            model = LlamaForCausalLM(
                LlamaConfig(
                    vocab_size=len(tokenizer),
                    hidden_size=hidden,
                    intermediate_size=wide,
                    num_hidden_layers=layers,
                    num_attention_heads=heads,
                    num_key_value_heads=kv_heads,
                    max_position_embeddings=8192,
                    bos_token_id=1,
                    eos_token_id=2,
                    pad_token_id=2,
                    tie_word_embeddings=True,
                    initializer_range=0.04,
                )
            )
        model.to(torch.bfloat16).save_pretrained(made)
        tokenizer.save_pretrained(made)
    return str(made)


@contextmanager
def served(folder: str, said: argparse.Namespace, **environment: str) -> Generator[ModelSettings]:
    """A vLLM server with these weights, or the one that runs there already; how this runtime calls it."""
    root = f"http://127.0.0.1:{said.port}"
    settings = ModelSettings(provider="vllm", name="policy", urls=(f"{root}/v1",))
    if answers(f"{root}/health"):
        yield settings
        return
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", folder),
        *("--served-model-name", "policy", "--host", "127.0.0.1", "--port", str(said.port)),
        *("--dtype", "bfloat16", "--max-model-len", "1024", "--max-num-seqs", str(said.in_flight)),
        *("--enable-scale-out", *said.engine_args.split()),
    ]
    if DEVICE == "cpu":
        command += ["--worker-extension-cls", EXTENSION]
    file = Path(said.server_log).open("w")  # noqa: SIM115 - the server writes it
    process = subprocess.Popen(
        command, env={**os.environ, "VLLM_SERVER_DEV_MODE": "1", **environment}, stdout=file, stderr=file
    )
    try:
        until_s = time.monotonic() + START_S
        while not answers(f"{root}/health"):
            if process.poll() is not None or time.monotonic() > until_s:
                raise SystemExit(f"vLLM did not start: see {said.server_log}")
            time.sleep(0.5)
        yield settings
    finally:
        process.terminate()
        process.wait()


def answers(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read().decode() or "yes"
    except OSError:
        return ""


class Idle:
    """Looks ten times a second how many requests the engine has; ``shares`` are since `begin`."""

    def __init__(self, engine: ModelSettings) -> None:
        self._metrics = engine.urls[0].removesuffix("/v1") + "/metrics"
        self.running: list[float] = []
        self._over = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            for line in answers(self._metrics).splitlines():
                if line.startswith("vllm:num_requests_running"):
                    self.running.append(float(line.split()[-1]))

    def begin(self) -> None:
        self.running.clear()

    @property
    def shares(self) -> dict[str, float]:
        found = list(self.running) or [0.0]
        idle = sum(1 for one in found if not one) / len(found)
        return {"engine_idle": round(idle, 3), "requests_running": round(statistics.fmean(found), 1)}
