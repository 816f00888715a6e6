"""Numbers, charts and pages about a run, and about two runs side by side.

summarizing.py and summary.py compute `summary.json` in Spark; page.py (HTML) and terminal.py show it, compare_report.py
shows a comparison. Start with summary.py.
"""
