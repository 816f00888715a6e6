"""Kafka's wire protocol: bytes to messages and back. Does not depend on sockets or on what messages mean.

`registry.py` lists the APIs, `messages/` declares their messages in terms of `schema.py` and `types.py`. `codec.py`
encodes and decodes them with functions that `compiler.py` generates. `frames.py` has the framing and the headers of
requests and responses, `records.py` and `message_sets.py` the formats of records, `consumer_protocol.py` the bytes that
consumers exchange through group requests, `releases.py` the API versions of each Kafka release. Start with `schema.py`
and one module of `messages/`.
"""
