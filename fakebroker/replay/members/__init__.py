"""Members that follow scripts, and everything they share in one task: connections, look-ups, loads, recorded events.

Depends on `fakebroker.client` (the group member, the protocol of a client), not on Spark. Start with
scripted_member.py (pure). member_driver.py plays it over any transport: member_loop.py over TCP, `replay.simulation` in
virtual time. events.py has the row that is recorded for each request.
"""
