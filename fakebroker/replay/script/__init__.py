"""Scripts of members: their settings and actions, generated from a workload and a seed.

Depends on `replay.workload`. Start with script.py, plain data that all of `replay` uses. generator.py generates scripts
with Spark SQL; acts.py has the SQL expressions of actions and random numbers.
"""
