"""The group coordinator: the groups of the partitions of `__consumer_offsets` that one broker leads.

Depends on `coordinator.runtime`. A `Coordinator` (`coordinator.py`) leads partitions, and handles the requests of
members. Its `groups` (`groups.py`) are the groups of both kinds, how they are created, changed and dropped, and how a
group replaces one of the other kind. Its `offsets` (`offsets/committed_offsets.py`) are what they have committed.
`classic` is the classic group, `modern` is the consumer group of KIP-848, and `batch_join` is an optional proposal
(KAFKA-8397). `api.py`, `config.py` and `records.py` define requests, settings and records as plain data. Start
with `coordinator.py` and `classic/states.py`.
"""
