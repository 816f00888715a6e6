"""The summary of a run, and its reports in the terminal and as HTML pages.

Start with summary.py, which computes `summary.json` with Spark: number_queries.py has the SQL for its numbers. html.py
with `templates/` and terminal.py show a summary, evidence.py the events that show a violation. Styles are in
`templates/style.css` for pages and fakebroker.mplstyle for charts.
"""
