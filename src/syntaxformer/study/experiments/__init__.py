"""Experiments are grids of runs that answer a question with error bars: spec, store, runner, report."""

from syntaxformer.study.experiments.cell import check_experiment, run_cell
from syntaxformer.study.experiments.report import write_report
from syntaxformer.study.experiments.runner import LocalExecutor, estimate_seconds, run_experiment
from syntaxformer.study.experiments.spec import Cell, Spec, load_spec
from syntaxformer.study.experiments.store import RunStore, planned_cells

__all__ = [
    "Cell",
    "LocalExecutor",
    "RunStore",
    "Spec",
    "check_experiment",
    "estimate_seconds",
    "load_spec",
    "planned_cells",
    "run_cell",
    "run_experiment",
    "write_report",
]
