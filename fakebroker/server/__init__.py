"""The cluster over TCP: adds sockets, threads and real time to the pure `fakebroker.cluster`.

`fake_cluster.py` contains the public class `FakeCluster`, `lifecycle.py` starts and stops threads and listeners, and
`reactor.py` is the loop that reads requests and writes responses; `connections/` has the clients' connections. Start
reading with `fake_cluster.py`.
"""
