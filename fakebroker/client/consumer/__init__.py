"""The consumer: `consumer.py` runs it with trio, `consumer_core.py` is the part without sockets and clocks.

Depends on `client.member` for group membership, and on `client.trio_brokers`, which sends its requests. Start with
`consumer.py`.
"""
