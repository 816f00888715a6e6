"""Coverage-guided fuzzing: bytes that a search finds by itself, for everything that reads bytes from clients.

`targets/` has one module per target: a function that takes bytes and raises if fakebroker has a defect, and seeds,
which are valid inputs that the search begins with. `corpus/` has inputs that were found and are kept: those of former
defects, and some that reach rare code. `test_corpus.py` runs all of them in `make test`, without atheris.

`run.py` is `make fuzz`: it runs each target in a process of its own (`process.py`, with atheris), and prints a table.
Depends on `fakebroker`, and on `tests/support/` for seeds. Start reading with `targets/__init__.py`.
"""
