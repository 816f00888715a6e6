"""The clients' connections: which are accepted, what limits them, and what faults do to them. Used by the reactor.

Start reading with `connection.py`, one connection with its requests and responses.
"""
