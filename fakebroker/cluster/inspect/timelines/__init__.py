"""Timelines of groups and of transactional ids, as data, as text and as SVG.

Start reading with `timeline.py`. `timeline_layout.py` has what differs between the two kinds.
"""
