"""Kafka clients: a consumer, an admin client, and the pure group member that the consumer and replays are built on.

They work with any Kafka cluster. Depends on `fakebroker.errors`, `fakebroker.topic_partition` and
`fakebroker.protocol`. Start with README.md, then `member/member.py` for group membership, `consumer/consumer_core.py`
for the consumer and `connection.py` for connections to brokers.
"""
