"""Published benchmarks: their authors' prompts, data and scores, mostly on verifiers of other environments.

A module is a declaration. Its example rows are our own: benchmarks' questions are fetched by ``prepare`` to
where they are used, and are not shipped.
"""
