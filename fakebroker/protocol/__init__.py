"""Kafka's wire protocol: encoding and decoding of messages. Does not depend on sockets, brokers or clients.

- `registry.py` lists the APIs, and `messages/` declares their messages with `schema.py` and `types.py`.
- `codec.py` encodes and decodes messages with functions that `compiler.py` generates.
- `frames.py` has the framing and the headers of requests and responses.
- `records.py`, `produced_batches.py` (validation) and `message_sets.py` have the formats of records.
- `transaction_markers.py` has the control records that end transactions.
- `consumer_protocol.py` has the subscriptions and assignments that consumers exchange.
- `releases.py` has the API versions of each Kafka release.

Start with `schema.py` and one module of `messages/`.
"""
