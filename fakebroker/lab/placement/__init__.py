"""The placement study: which broker coordinates which group, how even that is, and what moves when brokers change.

Compares option 2.a of the rewrite design (a hash of the group id selects a partition of the offsets topic, whose leader
coordinates the group), option 2.b (the first broker that is asked is elected in a registry) and, as the ideal, groups
placed by their size. Start with placement_plan.py (what is studied) and result.py (the figures), then study.py
(`place`: the figures of any number of groups, with Spark). counts.py moves counts of groups when brokers change, and
lookups.py simulates how clients find coordinators.
Depends on the registry, the scheduler of simulations, and the charts of reports.
"""
