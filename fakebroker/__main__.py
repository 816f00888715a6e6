"""`python -m fakebroker` is the command `fakebroker`."""

from fakebroker.cli import main

if __name__ == "__main__":
    main()
