"""`syntaxformer curves`: the course of training, drawn from the logs that runs write for TensorBoard."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.cli import options


def curves(
    runs: Annotated[list[Path], Argument(help="Folders of runs, such as runs/base runs/sit.")],
    output: Annotated[Path, Option("-o", "--output", help="Picture (.png, .svg, .pdf) or page (.html).")],
    only: Annotated[
        list[str] | None, Option(help="A number to draw, such as eval_bleu; repeatable; default: all.")
    ] = None,
) -> None:
    """Draw losses, scores and rates of one or more runs over their updates, a panel for each number.

    syntaxformer curves runs/base runs/sit -o curves.html
    """
    from syntaxformer.base.files import write_text
    from syntaxformer.study.document import Figure, Heading, to_html
    from syntaxformer.study.plots import Curve, draw_panels

    options.refuse_other_endings(output, (".png", ".svg", ".pdf", ".html"))
    panels: dict[str, dict[str, Curve]] = {}
    for run in dict.fromkeys(runs):
        for (line, name), points in _logged(run).items():
            panels.setdefault(name, {})[line] = Curve(*zip(*sorted(points.items()), strict=True))
    if missing := [name for name in only or () if name not in panels]:
        raise ConfigError(f"--only: expected one of {', '.join(sorted(panels))}, got {', '.join(missing)}.")
    panels = {name: panels[name] for name in only or sorted(panels)}
    if output.suffix != ".html":
        draw_panels(panels, output)
        return
    with tempfile.TemporaryDirectory() as folder:
        draw_panels(panels, Path(folder, "curves.png"))
        page = [Heading("Curves of training", 1), Figure("curves.png", ", ".join(map(str, runs)))]
        write_text(output, to_html(page, Path(folder)))


def _logged(run: Path) -> dict[tuple[str, str], dict[float, float]]:
    """Line and name → update → value; of updates that a resumed run logged again, the later value counts."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    series: dict[tuple[str, str], dict[float, float]] = {}
    files = sorted(run.rglob("events.out.tfevents.*"), key=lambda file: file.stat().st_mtime)
    is_one = len({file.parent for file in files}) == 1  # each rate and each seed has a folder
    for file in files:
        events = EventAccumulator(str(file), size_guidance={"scalars": 0}).Reload()
        for name in events.Tags()["scalars"]:
            points = series.setdefault((str(run if is_one else file.parent), name), {})
            points.update({event.step: event.value for event in events.Scalars(name)})
    if not series:
        remedy = "Train with training.tensorboard=true, and give the run's folder."
        raise DataError(f"expected logs of a run, found none. {remedy}", run)
    return series
