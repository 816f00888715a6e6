"""Load replay with Spark: a workload becomes scripted group members, their requests become events and a verdict.

Depends on `fakebroker.client` and `fakebroker.cluster`; on `fakebroker.server` for its poller and its clock only.
Start with runner.py, which runs one replay from file to report. The file format is in `workload`, scripts in `script`,
members in `members`; they play over TCP in Spark tasks (`spark`) or in virtual time (`simulation`). `verify` checks
promises, `report` shows numbers. commands.py has the commands of the CLI.
"""
