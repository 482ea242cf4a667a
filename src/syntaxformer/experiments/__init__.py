"""Grids of runs that answer a question with error bars: specification, store, runner, report."""

from syntaxformer.experiments.spec import Cell, Spec, load_spec

__all__ = ["Cell", "Spec", "load_spec"]
