"""The admin client: groups, offsets, topics and brokers.

Depends on `client.pool` for connections and on the message helpers of `client.member`. Start with `admin.py`;
`driver.py` explains how requests about many groups reach their coordinators.
"""
