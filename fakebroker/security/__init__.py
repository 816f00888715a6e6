"""Who a client is, and what it may do. Pure: random numbers and the time are passed in.

`acls.py` decides which operations are allowed (KIP-11, KIP-290); start there. Depends on `errors` only. Handlers ask
through `fakebroker.cluster.authorization`.
"""
