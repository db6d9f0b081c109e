"""Metrics of a whole system in one place: gathered over the bus, served to Prometheus, pushed by OTLP.

`gathering` keeps the figures current, `exposition` writes them as Prometheus reads them, `push` sends them to
a collector, and `server` is what the command line starts.
"""
