"""Looking at runs: the page of ``gym-runtime view``, ``show``, ``compare``, ``top``, metrics, trackers.

README.md says what reads what.
"""
