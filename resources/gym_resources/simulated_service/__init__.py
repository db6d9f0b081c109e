"""Customers and tools that models play, and what a judge says of each message."""
