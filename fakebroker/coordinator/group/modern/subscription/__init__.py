"""What members subscribe to: names and regular expressions, and the topics of the cluster that these are.

`topics.py` has the topics and their hash (`xxh3.py`), `subscriptions.py` counts what the members of a group subscribe
to, and `resolution.py` finds the topics of regular expressions. Start with `subscriptions.py`.
"""
