"""Generated documents: what generates them from the code, and tests that they are up to date.

`make rewrite` writes all of them. Start reading with `reference.py`.
"""
