"""Whether an experiment can run, asked before any of its runs is started and not hours later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from syntaxformer.errors import ConfigError, DataError
from syntaxformer.experiments.cell_config import resolve
from syntaxformer.experiments.plan import own_runs
from syntaxformer.experiments.provenance import check_recipe
from syntaxformer.experiments.spec import Cell, Spec
from syntaxformer.experiments.store import StoredRun
from syntaxformer.tasks.official_files import find_task
from syntaxformer.textfile import read_lines
from syntaxformer.training.finetune_config import OWN_TASKS, FinetuneConfig

__all__ = ["check_experiment"]


def check_experiment(spec: Spec, runs: Mapping[str, StoredRun]) -> None:
    """Hold that each run would start and can be scored, and that finished ones have the same recipe.

    Of a search one value of each setting is tried.

    Args:
        spec: The experiment.
        runs: All that its store has.

    Raises:
        ConfigError: All problems of settings and test files together; or a recipe that was edited since.
    """
    problems = [*_cell_problems(spec), *_test_problems(spec)]
    if problems:
        raise ConfigError(problems)
    check_recipe(own_runs(spec, runs).values())


def _cell_problems(spec: Spec) -> Iterator[str]:
    """Each problem once, with the first run that has it unless all have."""
    combinations = spec.combinations()
    found: dict[str, list[Mapping[str, str]]] = {}
    for labels in combinations:
        for problem in _problems(spec.sample_cell(labels)):
            found.setdefault(problem, []).append(labels)
    for problem, having in found.items():
        first = ", ".join(f"{axis} {level}" for axis, level in having[0].items())
        yield problem if len(having) == len(combinations) or not first else f"{first}: {problem}"


def _problems(cell: Cell) -> list[str]:
    try:
        config = resolve(cell)
        if isinstance(config, FinetuneConfig) and config.task not in OWN_TASKS:
            find_task(config.task)
    except ConfigError as error:
        return error.problems
    except DataError as error:
        return [str(error)]
    return []


def _test_problems(spec: Spec) -> Iterator[str]:
    if spec.test is None:
        return
    counts = {}
    for side in ("src", "ref"):
        try:
            counts[side] = sum(1 for _ in read_lines(getattr(spec.test, side)))
        except DataError as error:
            yield f"test.{side}: {error}"
    if len(counts) == 2 and (counts["src"] != counts["ref"] or not counts["src"]):
        yield (
            f"test: expected as many lines in src as in ref, and some, got {counts['src']} in "
            f"{spec.test.src} and {counts['ref']} in {spec.test.ref}."
        )
