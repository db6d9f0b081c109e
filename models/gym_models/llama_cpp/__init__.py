"""llama.cpp as a local engine: its weights, its server in a process of its own."""
