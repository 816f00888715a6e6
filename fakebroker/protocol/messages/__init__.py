"""Declarations of messages, one module per API; each class covers all versions of a message.

Names and versions are from Kafka's message definitions (`clients/src/main/resources/common/message`).
`consumer_offsets.py` has the records of `__consumer_offsets`, `consumer_protocol.py` the subscriptions and assignments
of consumers. The arguments of `field` are described in `protocol/schema.py`, the supported versions are in
`protocol/registry.py` and `releases.txt`. Depends on `protocol/schema.py` and `protocol/types.py`; start with
`heartbeat.py`.
"""
