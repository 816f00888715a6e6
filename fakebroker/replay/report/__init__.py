"""The summary of a run, and its reports in the terminal and as HTML pages.

Start with summary.py, which computes `summary.json`: one_pass.py gives the events to the promises (replay/promises) and
to the counts in partial_numbers.py, which number_rows.py and numbers.py convert to numbers. html.py with `templates/`
and terminal.py show a summary, evidence.py the events that show a violation. Styles are in `templates/style.css` for
pages and fakebroker.mplstyle for charts.

How to add a section:

1. `partial_numbers.py`: a table of counts; `replay/run_summary.py`: the type of its result, with descriptions;
   `number_rows.py` and `numbers.py`: the conversion.
2. `templates/report.html`: a `<section>`; `figures.py` for a chart; `terminal.py`: a table of at most 80 columns.
3. Sample data in `tests/support/replay/summaries.py`, the heading in `tests/replay/test_report.py`, values in
   `tests/replay/test_partial_numbers.py`. No test notices a missing section in the terminal.
4. Look at it: `fakebroker replay scenarios/workloads/steady-state.toml --transport memory --out /tmp/run`.
"""
