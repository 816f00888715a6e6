"""Statistics of a cluster: requests, errors and latencies per API, rates, groups by state, Prometheus metrics.

Depends on the cluster's journal and group history. Start with `meter.py`, which counts.
"""
