"""Runs a script with one design in virtual time: brokers, members, their connections, and measurements.

Depends on the interface of designs (`lab.design`), not on any design, and on the scheduler and the links of
`replay.simulation`. Start with world.py (one run), then members.py and brokers.py (the ports of designs), ownership.py
and traffic.py (what is measured). idle_groups.py skips the beats of groups in which nothing happens, without changing
the result.
"""
