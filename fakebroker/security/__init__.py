"""The identity of clients, and their permissions. Pure: random numbers and the time are passed in.

`acls.py` decides which operations are allowed (KIP-11, KIP-290); start there. Handlers ask through
`fakebroker.cluster.authorization`. `sasl.py` has the states of an authentication, `plain.py`, `scram.py` and
`oauthbearer.py` its mechanisms, for servers and for clients, `credentials.py` the users;
`fakebroker.cluster.authentication` and `fakebroker.client.authentication` use them.
Depends on `errors` only.
"""
