"""Declarations of messages, one module for each API: one class for all versions, with the versions beside each field.

Names and versions are those of Kafka's message definitions (`clients/src/main/resources/common/message`).
`consumer_offsets.py` has the records of `__consumer_offsets`, `consumer_protocol.py` the subscriptions and assignments
of consumers. Depends on `protocol/schema.py` and `protocol/types.py`; start with `heartbeat.py`.
"""
