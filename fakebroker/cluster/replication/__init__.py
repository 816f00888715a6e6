"""Leaders and replicas of partitions, and with them the coordinators of groups. Depends on brokers, topics and logs.

Start with `controller.py`, which elects leaders and moves replicas and coordinators. `replica_placement.py` places the
replicas of new partitions, in racks if there are any, and chooses the followers that consumers read from (KIP-392).
`replica_copies.py` has the copies of reassignments, which take time if they are throttled or held.
"""
