"""The logs of partitions, in memory, and incremental fetch sessions. Does not depend on brokers.

Start with `partition_log.py`. `compactor.py` compacts a log, and `producer_state.py` has the idempotent producers that
wrote to it. `offsets_topic.py` writes and reads the records of `__consumer_offsets`. `fetch_sessions.py` has the
incremental fetch sessions of one broker (KIP-227).
"""
