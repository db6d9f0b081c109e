"""Model adapters: each module connects one kind of inference engine, named after the module."""
