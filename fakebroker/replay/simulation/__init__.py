"""Simulates a replay in virtual time, without sockets. Equal seeds give equal events.

Depends on the scripted members of `replay.members` and on `fakebroker.cluster`. Start with simulation.py (one offsets
partition), then scheduler.py (virtual time), virtual_transport.py and network.py (requests and responses).
idle_members.py and postponed_appends.py save most of the work without changing the result.
"""
