"""Checkers of verifiable instructions: whether a text does as it was told, decided by rules alone.

Each checker is a function of a text, with the instruction's arguments by name; `registry` knows them by the
ids of their benchmarks. They are written anew from the benchmarks' public definitions and agree with them,
save where a definition draws arguments at random, raises on a text, or asks a trained tagger, which its
docstring says; where a definition counts a text that plainly does not do as told, or the reverse, so does
the checker, for scores that compare. Keywords of a row are regular expressions where the definition has it
so, and may backtrack; but for these no check takes more than linear time in the text.

Sources: IFEval (Zhou et al. 2023, arXiv:2311.07911; github.com/google-research/google-research);
IFBench and IFTrain (Pyatkin et al. 2025, arXiv:2507.02833; github.com/allenai/IFBench and
github.com/allenai/open-instruct, ``IFEvalG``), all Apache-2.0.
"""
