"""Numbers, charts and pages about a run, and comparisons of two runs.

summarizing.py and summary.py compute `summary.json` in Spark; page.py (HTML) and terminal.py show it, compare_report.py
shows a comparison. Start with summary.py.
"""
