"""The simulated cluster: brokers, topics, logs and groups. It handles requests and commands, and returns responses.

Pure: time, ids and random numbers are passed in, so that the same inputs give the same run. Depends on `coordinator`
(group coordination) and `protocol` (messages). Start with `cluster.py`, which has the state;
then `call.py` (a request and its response), `handlers/` (one module for each API), `replication/` (leaders), and
`broker.py`, `topics.py` and `logs/` (state). `request_path.py` is the path of a request, `handles/` has commands, views
and conditions.
"""
