"""Numbers, charts and pages about a run, and comparisons of two runs.

summarizing.py and summary.py compute `summary.json` in Spark; html.py with `templates/` and terminal.py show it,
compare_report.py shows a comparison. The look of pages is in `templates/style.css`, that of charts in
fakebroker.mplstyle. Start with summary.py.
"""
