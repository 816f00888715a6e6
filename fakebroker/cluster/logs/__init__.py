"""The logs of partitions, and what brokers keep beside them. Does not depend on topics, brokers or requests.

Start with `partition_log.py`; `compactor.py` compacts a log and `producer_state.py` has its idempotent producers.
`offsets_topic.py` writes and reads the records of group coordinators, `fetch_sessions.py` has the incremental fetch
sessions of one broker (KIP-227).
"""
