"""Comparison of two replays: which figures differ by more than noise, in a terminal and as an HTML page.

compared_figures.py defines the figures, noise.py estimates their noise, and compare.py judges the differences.
comparison_report.py shows them, with the charts of comparison_charts.py. Depends on neither Spark nor a cluster. Start
with compare.py.
"""
