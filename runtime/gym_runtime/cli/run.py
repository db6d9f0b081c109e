"""``run``, ``publish`` and ``collect``: rows in, rollouts made, files out.

A run streams: rows are checked to the end first, then expanded, published and collected side by side,
with no more rollouts on the way than the workers can use. What is collected is on disk within moments;
an interruption at any time leaves whole lines, and ``--resume`` makes what is missing.
"""

from __future__ import annotations
