"""The simulated cluster: brokers, topics, logs, requests in, responses out.

Pure: time, ids and random numbers are passed in, so that the same inputs give the same run. Depends on `coordinator`
(group coordination) and `protocol` (messages). Start with `cluster.py`, where state and services meet and each request
is dispatched; then `call.py` (a request and its response), `handlers/` (one module for each API), `controller.py`
(leaders) and `broker.py`, `topics.py` and `logs/` (state).
"""
