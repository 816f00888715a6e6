"""Groups, offsets and records that commands create without a client. Depends on `Cluster` and the Produce handler.

Start with `seed.py`, which creates groups. `producer.py` appends records as the Produce API does. `seed_lag.py`
produces the records that a seeded lag needs.
"""
