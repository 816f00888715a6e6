"""Fault injection: rules that make matching requests fail, and delayed responses.

Start with `rule.py`, the rule as plain data (`fakebroker.Fault`), then `injection.py`, which applies the active ones.
`error_catalog.py` is the table of the errors that each API can return, `error_responses.py` builds responses with them.
Network conditions of brokers are in `server/network_faults.py`.
"""
