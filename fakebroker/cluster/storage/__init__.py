"""The state of a cluster as entries of a log, so that it survives its process. Pure.

Depends on `Cluster` and its snapshots; files are in `fakebroker.server.data_directory`. Start with `entries.py`, which
lists the kinds of entries. `state_writer.py` records changes, and `checkpoint.py` the whole state.
`stored_state.py` collects entries, and makes a cluster of them. `entry_writer.py` writes
only what has space, and `guarded_handlers.py` refuses requests otherwise.

Logs report appends, new start offsets and truncations to their `storage` before they change; topics report to
`Topics.storage`; small parts of the state (`sections.py`) are compared after requests and commands that may change
them. A new kind of state needs a section, and a step in `tests/cluster/storage/test_restore.py`. Compaction is not
recorded, because it is repeated. Of a reset or a restored snapshot, nothing is recorded until it is in a checkpoint.
"""
