"""Experiments are grids of runs that answer a question with error bars: spec, store, runner, report.

Import from the modules.
"""
