"""The state of a cluster as entries of a log, so that it survives its process. Pure.

Depends on `Cluster` and its snapshots; files are in `fakebroker.server.data_directory`. Start with `entries.py`, which
lists the kinds of entries. `state_writer.py` records changes, and `checkpoint.py` the whole state.
`stored_state.py` collects entries, and makes a cluster of them. `entry_writer.py` writes
only what has space, and `guarded_handlers.py` refuses requests otherwise.
"""
