"""Structured text and JSON Schema: formats read into JSON values, schemas made strict, values validated.

Everything here takes what a model wrote, so it is bounded: aliases of YAML are counted before they are
followed, XML has no entities of its own, references to other documents are not fetched. Expressions of a
schema (``pattern``) may still backtrack without end, so validation belongs in a process that can be killed.
"""
