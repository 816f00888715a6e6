"""Generators of the generated parts of documents, and tests that documents are up to date.

Start with `generated.py`, which lists all generated parts.
"""
