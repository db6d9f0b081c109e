"""The child process: llama.cpp's HTTP server on a free loopback port.

    python -m gym_models.llama_cpp.llama_server MODEL.gguf --slots 8 --context-tokens 2048 --threads 1

Prints its base URL on one line when it is ready, and exits when its standard input ends: so it dies with its
parent, whatever kills that.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="gym_models.llama_cpp.llama_server")
    parser.add_argument("model", type=Path)
    parser.add_argument("--name", default="embedded")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--context-tokens", type=int, default=2048, help="of each slot")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--template", type=Path, default=None, help="a chat template instead of the model's")
    given = parser.parse_args()

    xllamacpp = importlib.import_module("xllamacpp")  # an extra without types
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(given.model)
    parameters.model_alias = [given.name]
    parameters.hostname = "127.0.0.1"
    parameters.port = 0
    parameters.n_parallel = given.slots
    parameters.n_ctx = given.slots * given.context_tokens
    parameters.n_threads_http = given.slots + 4  # a kept-alive connection holds a thread
    parameters.cpuparams.n_threads = given.threads
    parameters.cpuparams_batch.n_threads = given.threads
    parameters.cont_batching = True
    parameters.use_jinja = True
    parameters.webui = False
    parameters.endpoint_slots = True
    parameters.endpoint_metrics = True
    parameters.cache_ram_mib = 0
    parameters.verbosity = 1
    if given.template is not None:
        parameters.chat_template = given.template.read_text()
    server = xllamacpp.Server(parameters)
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # skip the shutdown of its threads: there is nothing to save


if __name__ == "__main__":
    main()
