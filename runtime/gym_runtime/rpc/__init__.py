"""Requests between workers: which workers are alive, which one is asked, retries, lost answers."""
