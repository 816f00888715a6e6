"""Regenerates the conversations of kept histories. `python -m tests.lab.rewrite`, or `make rewrite`."""

from fakebroker.lab.history.history import parse_history
from tests.lab.test_histories import KEPT

if __name__ == "__main__":
    for path in KEPT:
        path.write_text(parse_history(path.read_text()).text())
