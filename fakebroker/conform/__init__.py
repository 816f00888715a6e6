"""Conformance: plays transcripts of requests and expected responses on a fake cluster or on a real Kafka cluster.

Depends on `fakebroker.cluster` and `fakebroker.coordinator` for the texts of groups and the records of coordinators,
and on `fakebroker.client` for connections to real clusters. Start with transcript.py (the file format), then player.py
(one transcript on any cluster) and members.py, producers.py and consumers.py (the requests). conformance.py is the run
on a real cluster, with kafka_target.py, kafka_cluster.py and names.py; report.py shows its results.
"""
