"""The simulated universes of ``newton_bench``: laws, experiments, scores, and the rows that ask for them."""
