"""Generated parts of documents: what generates them from the code, and tests that they are up to date.

Start with `generated.py`, which lists them.
"""
