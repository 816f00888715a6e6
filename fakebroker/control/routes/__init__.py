"""The operations of the HTTP API: one function each, registered in a table with its path, arguments and result.

Depends on `FakeCluster` and msgspec, not on an HTTP server. `operations.py` is the table, `dispatch.py` finds and runs
an operation, `openapi.py` generates the OpenAPI document; the other modules define the operations, and `views/` the
objects that they return.
"""
