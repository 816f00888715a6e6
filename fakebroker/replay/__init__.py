"""Load replay with Spark: runs the group members that a workload describes, records their requests, and judges them.

Depends on `fakebroker.client` and `fakebroker.cluster`. Of `fakebroker.server` it uses only the poller and the clock.
Start with runner.py, which runs one replay from file to report. `workload` reads the workload file, `script` generates
a script for each member, and `members` has the members; they run over TCP in Spark tasks (`spark`) or in virtual time
(`simulation`). `verify` checks the recorded events, `report` computes and shows numbers, `comparison`
compares two runs. commands.py implements the CLI's commands.
"""
