"""Structured text and JSON Schema: formats read into JSON values, schemas made strict, values validated.

Everything here reads a model's text, so it is limited: aliases of YAML are counted before they are
followed, XML has no entities of its own, references to other documents are not fetched. Expressions of a
schema (``pattern``) may still backtrack exponentially, so validation belongs in a process that can be killed.
"""
