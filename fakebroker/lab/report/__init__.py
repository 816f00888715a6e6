"""The report of a study: tables for terminals, and an HTML page with charts and sequence diagrams.

Depends on `lab.study` and on the pages, charts and tables of `replay.report`. Start with page.py; sections.py has
further sections that a study may bring, sequence.py the messages of a small run, and sequence_svg.py their picture.
"""
