"""Peers that misbehave: what they send, how they (do not) read, how many they are, and the limits that stop them.

In each test a well-behaved member of a group is served meanwhile (`tests/support/server/bystander.py`): each of its
heartbeats and commits is answered without error, and the CPU time of the cluster's thread between a request and its
answer is limited, which does not depend on what else runs on the machine. Memory may grow during the attack by a limit;
afterwards it is given back, and all file descriptors are.
"""
