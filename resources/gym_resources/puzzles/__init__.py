"""Puzzles that the library reasoning-gym makes."""
