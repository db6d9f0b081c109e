"""Verifying answers about molecules and reactions, by the rules of the ether0 benchmark.

The modules need RDKit, so they are imported where a verification runs. Source: the reward functions of
github.com/Future-House/ether0 (Apache-2.0) by their behaviour; without its partial credit, which training
and benchmark do not give, and without its services on the network.
"""
