"""The group coordinator: the groups of the partitions of `__consumer_offsets` that one broker leads.

Stands on `coordinator.runtime`. `coordinator.py` has the requests, `classic` the classic group, `batch_join` a proposal
that is optional; `api.py`, `config.py` and `records.py` are what goes in and out, as plain data.
Start with `coordinator.py` and `classic/states.py`.
"""
