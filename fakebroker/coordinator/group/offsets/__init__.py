"""The offsets that groups have committed, and the requests for them. `Coordinator.offsets` is a `CommittedOffsets`.

Start reading with `committed_offsets.py`, which handles the requests; `offset_requests.py` makes their results and
records. `offset_store.py` is the store of one group, `pending_offsets.py` has the offsets of open transactions.
"""
