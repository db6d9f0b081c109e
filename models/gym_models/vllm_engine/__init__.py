"""What the ``vllm`` adapter is made of: exact tokens, versions of weights, the engine in our own process."""
