"""The endurance run: everything that clients do, against one cluster, for half an hour.

Nothing leaks, and no promise is broken. `run.py` starts `fakebroker serve` and processes with clients (`load.py`),
stops brokers, moves coordinators, adds faults and reads the HTTP API meanwhile, and samples memory, descriptors and the
journal of the server. `loop.py` runs the clients; `clients.py` has what they share. `classic_members.py`,
`consumer_members.py`, `producers.py` and `admin_clients.py` have the clients, each with what it checks.

`make soak` runs it and writes `scenarios/endurance.md`; `test_endurance.py` runs it for seconds in `make test`.
Depends on `fakebroker.protocol` and the command `serve`. Start reading with `run.py`.
"""
