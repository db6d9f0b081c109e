"""Preparing data: rows from wherever they are, checked and blended, as files to train and evaluate on.

    sources ──▶ files of rows ──▶ (check all) ──▶ collate ──▶ train.jsonl, validation.jsonl, example.jsonl
     hub         prompts                           blend       <split>_metrics.json, sources.json
                                     └──▶ of each source <stem>_prepare.jsonl, <stem>_metrics.json

Rows are read again for every file that holds them. Nothing is written while any row is wrong or any source
is not what its stored metrics say, and each file appears whole or not at all. Memory does not grow with the
number of rows, but for the eight bytes by which a dataset knows its repeated rows and a digest per distinct
text that the metrics count.
"""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
