"""Simulated services with state, such as a file system or an airline, and calls played on them."""
