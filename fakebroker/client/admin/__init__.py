"""The admin client: groups, offsets, transactions, topics and brokers.

Depends on `client.pool` for connections and on the message helpers of `client.member`. Start with `admin.py`;
`driver.py` explains how requests about many keys reach their coordinators and leaders.
"""
