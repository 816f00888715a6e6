"""The command `fakebroker`: one module per subcommand; `main.py` puts them together.

Depends on `server`, `replay` and `control`; imports the optional extras only inside the subcommands that need them.
"""
