"""The logs of partitions, in memory, and incremental fetch sessions. Only `log_manager.py` depends on topics.

Start with `partition_log.py`. `compactor.py` compacts a log, and `producer_state.py` has the idempotent producers that
wrote to it. `coordinator_records.py` writes and reads the records of coordinators. `fetch_sessions.py` has the
incremental fetch sessions of one broker (KIP-227). `log_manager.py` deletes expired records and compacts topics by the
brokers' clock.
"""
