"""Environments: each module is one, named after the module, with example rows beside it."""
