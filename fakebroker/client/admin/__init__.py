"""The admin client: groups, offsets, transactions, topics and brokers.

Depends on `client.trio_brokers`, which sends its requests, and on the message helpers of `client.member`. Start with
`admin.py`; `driver.py` explains how requests about many keys reach their coordinators and leaders.
"""
