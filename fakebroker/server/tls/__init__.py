"""TLS for the connections of a cluster; imported only by clusters with SSL or SASL_SSL listeners.

`tls_socket.py` has the class that stands between the reactor and the socket of a connection; start there.
`tls_listener.py` makes the contexts from settings with Kafka's names, `certificates.py` the certificates of
`FakeCluster(tls=True)`, for which it needs the extra `tls`.

Depends on `security`, and on the settings and listeners of `cluster`.
"""
