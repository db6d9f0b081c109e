"""Preparing data: rows from files, the hub or environments, checked and blended, as files to train on.

    sources ──▶ files of rows ──▶ (check all) ──▶ collate ──▶ train.jsonl, validation.jsonl, example.jsonl
     hub                                           blend       <split>_metrics.json, sources.json
                                     └──▶ of each source <stem>_prepare.jsonl, <stem>_metrics.json

Rows are read again for every file that gets them. Nothing is written if any row is wrong or any source
differs from its stored metrics, and each file appears whole or not at all. Memory grows by eight bytes a row,
by which a dataset finds repeated rows, and by a digest for each distinct text that the metrics count.
"""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
