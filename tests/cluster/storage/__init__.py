"""Tests of `fakebroker.cluster.storage`: what is written, and what a start makes of it."""
