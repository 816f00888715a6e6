"""Members that follow scripts, and what the members of a task share: connections, look-ups, loads, recorded events.

Depends on `fakebroker.client` (the group member and transports), not on Spark. Start with scripted_member.py, a state
machine without sockets or clocks. member_driver.py runs it over a transport: TCP (member_loop.py) or virtual time
(`replay.simulation`). scripted_producer.py and producer_driver.py do the same for its transactional producer, whose
records committed_reader.py reads. events.py defines the row that records a request.
"""
