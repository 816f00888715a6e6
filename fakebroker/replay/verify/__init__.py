"""The verdict on a run: availability, promises of coordinators, and expectations.

Start with verdict.py. preconditions.py says what a workload needs so that a promise can be exercised.
"""
