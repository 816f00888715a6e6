"""From a workload and a seed to one script per member: what it does and when.

script.py is plain data, shared by all of a replay. generator.py makes the scripts with Spark SQL; acts.py has the
expressions for what members do, and the random choices. Depends on `replay.workload`.
"""
