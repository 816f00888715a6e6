"""Simulates a replay in virtual time, without sockets: same seed, same events.

Depends on the scripted members of `replay.members` and on a cluster of `fakebroker.cluster`. Start with
simulation.py (one offsets partition), then scheduler.py (virtual time), virtual_transport.py and network.py (requests
and responses); idle_heartbeats.py makes it fast.
"""
