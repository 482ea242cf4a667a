"""`syntaxformer experiment run|report SPEC.yaml`: does grids of runs and reports their results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from syntaxformer.study.experiments.spec import Only, Spec
    from syntaxformer.study.experiments.store import RunStore

experiment = options.App(
    name="experiment",
    help="Do and report a grid of runs from a YAML file.\n\nsyntaxformer experiment run SPEC.yaml",
    no_args_is_help=True,
)

SpecPath = Annotated[Path, Argument(help="YAML file of the experiment.")]
StorePath = Annotated[
    Path | None, Option("--store", help="Folder of its runs; default: runs/experiments/NAME.")
]
SetOption = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="A setting of all runs, as model=FOLDER or data.dir=FOLDER."),
]


@experiment.command()
@options.with_relations
def run(
    spec: SpecPath,
    store: StorePath = None,
    settings: SetOption = None,
    jobs: Annotated[int, Option(min=1, help="Number of parallel runs, at most one for each GPU.")] = 1,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show runs, states and cost.")] = False,
    retry_failed: Annotated[bool, Option("--retry-failed", help="Do failed runs again.")] = False,
    only: Annotated[
        list[str] | None,
        Option(metavar="AXIS=LEVEL", help="Do only these runs; repeatable, also for levels of one axis."),
    ] = None,
    seeds: Annotated[
        int | None, Option(min=1, help="Do only the first so many levels of the axis called seed.")
    ] = None,
) -> None:
    """Do the missing runs. Killed runs are resumed; failed runs are done again only with --retry-failed.

    syntaxformer experiment run experiments/sundararaman2019_table1_multi30k.yaml --jobs 2
    """
    from syntaxformer.study.experiments.runner import run_experiment

    plan, runs = _read(spec, settings, store)
    selection = _selection(plan, only or (), seeds)
    if dry_run:
        _show_plan(plan, runs, jobs, selection, retry_failed)
        return
    counts = run_experiment(plan, runs, jobs, retry_failed, only=selection)
    options.echo(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
    if counts["failed"] or counts["killed"]:
        raise Exit(1)


@experiment.command()
@options.with_relations
def report(
    spec: SpecPath,
    store: StorePath = None,
    settings: SetOption = None,
    output: Annotated[
        Path | None, Option("-o", "--output", help="Folder of the report; default: STORE/report.")
    ] = None,
) -> None:
    """Write report.md with PNG figures, and the same report as one file, report.html.

    syntaxformer experiment report experiments/sundararaman2019_table1_multi30k.yaml
    """
    from syntaxformer.study.experiments.report import write_report

    plan, runs = _read(spec, settings, store)
    if not runs.path.exists():
        raise DataError("expected the store of an experiment that was run (--store), got none.", runs.path)
    options.echo(write_report(plan, runs, output or runs.folder / "report"))


@experiment.command(hidden=True)
def cell(folder: Annotated[Path, Argument(help="Folder of one run.")]) -> None:
    """Do one run; `experiment run` starts this command in a separate process."""
    from syntaxformer.study.experiments.cell import run_cell

    run_cell(folder)


def _read(path: Path, settings: Sequence[str] | None, store: Path | None) -> tuple[Spec, RunStore]:
    """The experiment of a YAML file, and its runs."""
    from syntaxformer.study.experiments.spec import load_spec
    from syntaxformer.study.experiments.store import RunStore

    spec = load_spec(path, settings or ())
    return spec, RunStore(store or Path("runs/experiments") / spec.name)


def _selection(spec: Spec, settings: Sequence[str], n_seeds: int | None) -> Only:
    """Axis → the levels that are done."""
    only: dict[str, set[str]] = {}
    for setting in settings:
        axis, equals, level = setting.partition("=")
        if not equals:
            raise ConfigError(f"--only: expected AXIS=LEVEL, got {setting}.")
        only.setdefault(axis, set()).add(level)
    if n_seeds is not None:
        levels = list(map(str, spec.axes.get("seed", ())))
        if len(levels) < n_seeds or "seed" in only:
            expected = f"expected at most {len(levels)}, the levels of the axis seed, and no --only seed=…"
            raise ConfigError(f"--seeds: {expected}, got {n_seeds}.")
        only["seed"] = set(levels[:n_seeds])
    return only


def _show_plan(spec: Spec, store: RunStore, jobs: int, only: Only, retry_failed: bool) -> None:
    from syntaxformer.study.experiments.cell import check_experiment
    from syntaxformer.study.experiments.groups import power_in_words
    from syntaxformer.study.experiments.runner import estimate_seconds
    from syntaxformer.study.experiments.spec import in_words
    from syntaxformer.study.experiments.store import planned_cells

    runs = store.runs()
    cells = planned_cells(spec, runs, only)
    check_experiment(spec, runs)
    total, n_unknown, n_skipped = 0.0, 0, 0
    for cell in cells:
        state = runs[cell.key].state if cell.key in runs else "waiting"
        if state == "done":
            cost = f"{runs[cell.key].seconds:.0f} s"
        elif state == "failed" and not retry_failed:
            cost, n_skipped = "skipped", n_skipped + 1
        else:
            guess = estimate_seconds(spec, cell, runs)
            cost = "cost unknown" if guess is None else f"about {guess:.0f} s"
            total, n_unknown = total + (guess or 0.0), n_unknown + (guess is None)
        options.echo(f"{state:<8} {cost:>14}  {in_words(cell.labels)}")
    todo = [f"about {total / 3600 / jobs:.1f} hours with {jobs} at a time"] if total else []
    if n_unknown:
        todo.append(f"{n_unknown} of unknown cost")
    skipped = f"; {n_skipped} failed, skipped without --retry-failed" if n_skipped else ""
    for contrast in spec.report.planned:
        options.echo(power_in_words(spec, runs, contrast))
    options.echo(f"{len(cells)} runs; to do: {', and '.join(todo) or 'nothing'}{skipped}")
