"""The journal of requests and responses, with limits of its size. Depends on `fakebroker.cluster.call`.

Start with `journal.py`. `message_size.py` estimates the memory of messages. `dropped_calls.py` counts the requests that
the journal has dropped, so that queries can say whether they are exact.
"""
