"""The JSON objects that operations return: of clusters and brokers, of groups, and of transactional ids.

A view of `fakebroker.cluster.inspect` is encoded as it is. Where HTTP returns more, a subclass has the other fields.
The control client decodes the JSON to the view, without them.

Start reading with `group_views.py`.
"""
