"""A study: runs of each design in each scenario with each seed, on Spark, and their comparison.

Depends on scenarios, runs and measurements of the lab, and on the progress of tasks of `replay.spark`. Start with
plan.py (what is run), then tasks.py (Spark tasks), results.py (their rows), figures.py and summary.py (comparison).
"""
