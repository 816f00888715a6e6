"""Kafka clients: a consumer, an admin client, and the pure group member and producer that replays are built on.

They work with any Kafka cluster. Depends on `fakebroker.errors`, `fakebroker.topic_partition` and
`fakebroker.protocol`. Start with README.md, then `member/member.py` for group membership, `producer/producer.py` for
transactions, `consumer/consumer_core.py` for the consumer and `connection.py` for connections to brokers.
"""
