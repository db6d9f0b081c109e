"""Checkers of verifiable instructions: whether a text follows an instruction, decided by rules alone.

Each checker is a function of a text, with the instruction's arguments by name; `registry` lists them by their
benchmarks' ids. They are our own implementations of the benchmarks' public definitions and agree with them,
except where a definition draws arguments at random, raises on a text, or uses a trained tagger; the
docstrings name these cases. Where a definition accepts a text that plainly breaks the instruction, or the
reverse, so does the checker, to keep scores comparable. Keywords of a row are regular expressions where the
definition has them, and may backtrack; all other checks take linear time in the text.

Sources: IFEval (Zhou et al. 2023, arXiv:2311.07911; github.com/google-research/google-research);
IFBench and IFTrain (Pyatkin et al. 2025, arXiv:2507.02833; github.com/allenai/IFBench and
github.com/allenai/open-instruct, ``IFEvalG``), all Apache-2.0.
"""
