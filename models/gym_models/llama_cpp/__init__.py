"""llama.cpp as a local engine: its weights, and its server in a child process."""
