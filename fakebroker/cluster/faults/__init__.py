"""Fault injection: rules with an effect on matching requests, such as an error, a delay or a lost response.

Start with `rule.py`, which defines a rule as plain data (`fakebroker.Fault`). `injection.py` applies the active ones.
`error_catalog.py` is the table of the errors that each API can return; `error_responses.py` builds responses with them.
`delayed_answers.py` delays responses to SyncGroup. `server/connections/network_faults.py` has the network conditions of
brokers.
"""
