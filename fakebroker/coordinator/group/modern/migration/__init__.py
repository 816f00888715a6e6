"""Members of the classic protocol in consumer groups, and groups that change from one protocol to the other.

`classic_members.py` has the requests of classic members, `conversion.py` both directions of an online migration, and
`embedded_protocol.py` the bytes of Kafka's `ConsumerProtocol`. Depends on the other modules of `modern`, and on
`classic`. Start with `conversion.py`.
"""
