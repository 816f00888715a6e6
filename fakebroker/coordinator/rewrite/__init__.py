"""The group coordinator of Kafka's consumer rewrite design, which was implemented once and replaced before 0.9.

One JoinGroup joins a consumer, the coordinator assigns partitions, and the generation is in every heartbeat. Group
metadata is in a registry (`coordinator/registry.py`). Independent of other groups; depends on `coordinator/timers.py`,
on `fakebroker.assignment` and on `fakebroker.errors`. Start with `states.py` (the answer to each
request in each state) and `coordinator.py` (the requests, and how contradictions of the document are read).
"""
