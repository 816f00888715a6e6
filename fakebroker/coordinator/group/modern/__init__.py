"""Consumer groups of the consumer rebalance protocol (KIP-848).

`assignors` has the server-side assignors.
"""
