"""Small histories of one group that break what a design promises: found at random, made shorter, and kept as files.

Depends on `lab.world`. Start with history.py (the file format), then checker.py (what is broken), search.py (finding
and shortening) and conversation.py (what is shown of a run). command.py is for the command line.
"""
