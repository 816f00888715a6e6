"""What options 1.a, 1.b and 1.c of the consumer rewrite document share: messages, parts of consumers and coordinators.

Of a consumer: registration.py, pings.py, fetcher.py, and fetcher_consumer.py for 1.b and 1.c. Of a coordinator:
served_groups.py, offset_cache.py, registered_ownership.py, sessions.py, and for 1.b and 1.c purgatory.py,
rebalancers.py and fetcher_coordinator.py. Start with messages.py; the designs themselves are option_1a.py, option_1b.py
and option_1c.py.
"""
