"""The files of a data directory: a log of entries, and checkpoints that replace what the log has before them.

Does not know what the entries mean. `directory.py` has `DataDirectory`, where to start reading; `blocks.py` the format
of the files, `recovery.py` what a start reads and cuts. Depends on
`fakebroker.errors` and `fakebroker.protocol.records`.
"""
