"""The command `fakebroker`: one module per subcommand, and `main.py`, which dispatches to them.

Depends on `server`, `replay` and `control`. The base install lacks Spark and the HTTP server, so subcommands import
them only when they run.
"""
