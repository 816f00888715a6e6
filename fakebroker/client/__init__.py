"""Kafka clients: a consumer, an admin client, and the pure group member and producer that replays are built on.

They work with any Kafka cluster. Depends on `fakebroker.errors`, `fakebroker.topic_partition`, `fakebroker.protocol`
and `fakebroker.security`. Start with README.md, then `member/member.py` for group membership, `producer/producer.py`
for transactions, `consumer/consumer_core.py` for the consumer, `brokers.py` for how their requests reach brokers, and
`security.py` for encryption and authentication.
"""
