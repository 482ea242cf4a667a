"""Whether an experiment can run, asked before any of its runs is started and not hours later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from syntaxformer.annotate.wrappers import SPLIT
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import read_lines
from syntaxformer.base.languages import choose_annotator, language_of_side
from syntaxformer.encoders.finetune_config import FinetuneConfig
from syntaxformer.encoders.tasks import OWN_TASKS, find_task
from syntaxformer.study.experiments.cell import check_recipe, resolve
from syntaxformer.study.experiments.plan import own_runs
from syntaxformer.study.experiments.spec import Cell, ScoredText, SearchConfig, Spec
from syntaxformer.study.experiments.store import StoredRun
from syntaxformer.translation.prepare import needs_annotator
from syntaxformer.translation.recipe import Recipe


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
        for problem in _problems(spec, spec.sample_cell(labels)):
            found.setdefault(problem, []).append(labels)
    for problem, having in found.items():
        first = ", ".join(f"{axis} {level}" for axis, level in having[0].items())
        yield problem if len(having) == len(combinations) or not first else f"{first}: {problem}"


def _problems(spec: Spec, cell: Cell) -> list[str]:
    try:
        config = resolve(cell)
        if isinstance(config, FinetuneConfig):
            if config.task not in OWN_TASKS:
                find_task(config.task)
            return [] if spec.search is None else list(_metric_problems(spec.search, config))
        return [] if spec.test is None else list(_input_problems(spec.test, config))
    except ConfigError as error:
        return error.problems
    except DataError as error:
        return [str(error)]


def _metric_problems(search: SearchConfig, config: FinetuneConfig) -> Iterator[str]:
    """Of a metric that the task has not: no trial would have a value."""
    names = (OWN_TASKS.get(config.task) or find_task(config.task)).metrics
    known = ["score", *names, *(["mean"] if len(names) > 1 else [])]
    if search.metric not in known:
        expected = f"expected what {config.task} is scored by, {', '.join(known)}"
        yield f"search.metric: {expected}, got {search.metric}."


def _input_problems(test: ScoredText, recipe: Recipe) -> Iterator[str]:
    """Of a trained model that could not read the test text."""
    factors = [name for name, _ in recipe.width_plan().factors]
    if missing := [name for name in factors if name in recipe.data.factor_files and name not in test.factors]:
        yield f"test.factors: expected a file for each factor of your own, got none for {', '.join(missing)}."
    needed = needs_annotator(factors, recipe.syntax_inputs(training=False))
    beside = recipe.annotation.annotator or ""
    if needed and test.annotator is None and SPLIT in beside:
        yield f"test.annotator: expected one for the test text beside {beside}, got none."
    if needed and test.annotator not in (None, beside) and not recipe.annotation.force:
        choose_annotator(test.annotator, language_of_side(recipe.data, recipe.data.src), "test.annotator")


def _test_problems(spec: Spec) -> Iterator[str]:
    if spec.test is None:
        return
    counts, files = {}, {"src": spec.test.src, "ref": spec.test.ref}
    files |= {f"factors.{name}": file for name, file in spec.test.factors.items()}
    for name, file in files.items():
        try:
            counts[name] = sum(1 for _ in read_lines(file))
        except DataError as error:
            yield f"test.{name}: {error}"
    n_lines = counts.pop("src", None)
    for name, count in counts.items():
        if n_lines is not None and (count != n_lines or not count):
            yield (
                f"test: expected as many lines in src as in {name}, and some, got {n_lines} in "
                f"{spec.test.src} and {count} in {files[name]}."
            )
