"""The group coordinator: the groups of the partitions of `__consumer_offsets` that one broker leads.

Depends on `coordinator.runtime`. `coordinator.py` handles the requests. `classic` is the classic group, `modern` is the
consumer group of KIP-848, and `batch_join` is an optional proposal (KAFKA-8397). `pending_offsets.py` has the offsets
of open transactions. `api.py`, `config.py` and `records.py` define requests, settings and records as plain data. Start
with `coordinator.py` and `classic/states.py`.
"""
