"""Lean 4: proofs in a model's text, and their checking by Lean."""
