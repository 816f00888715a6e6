"""`python -m fakebroker` runs the command `fakebroker`."""

from fakebroker.cli.main import main

if __name__ == "__main__":
    main()
