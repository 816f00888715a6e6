"""The journal of requests and responses, with limits of its size. Depends on `fakebroker.cluster.call`.

Start with `journal.py`. It also counts the requests that were dropped, so that queries can say whether they are exact.
`message_size.py` estimates the memory of messages.
"""
