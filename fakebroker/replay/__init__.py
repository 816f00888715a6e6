"""Spark load replay: a workload becomes a swarm of real group members, their requests become events and a verdict."""
