"""The design lab: designs of group coordination, run with the same workload, network and failures in virtual time.

Compares today's protocols with those of the consumer rewrite design (Kafka 0.9). Depends on the pure coordinators and
members, and on the simulation, the Spark session and the reports of `replay`. Start with design.py (what a design is),
then designs/classic.py (one design), script.py (what happens in a run), world/ (a run).
"""
