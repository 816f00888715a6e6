"""The JSON objects that operations return: of clusters and brokers, of groups, and of transactional ids.

Start reading with `group_views.py`.
"""
