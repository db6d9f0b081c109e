"""The parts of the ``vllm`` adapter: exact tokens, versions of weights, the engine in this process."""
