"""The consumer: `consumer.py` is its trio side, `consumer_core.py` everything that needs neither sockets nor clocks.

Depends on `client.member` for group membership, and on `client.pool` for connections. Start with `consumer.py`.
"""
