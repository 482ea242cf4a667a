"""Line charts as PNG files that are the same bytes for the same numbers. Takes numbers, computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from syntaxformer.base.files import atomic_file


@dataclass(frozen=True)
class Curve:
    """Points of one line, with half the height of their error bars where there are any."""

    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None


def draw_curves(
    curves: Mapping[str, Curve], path: Path, x_label: str, y_label: str, log_x: bool = False
) -> None:
    """One line for each entry, with error bars.

    Args:
        curves: Name in the legend → points; dashed where the name ends in "(paper)".
        path: PNG file.
        x_label: Under the chart.
        y_label: Beside it.
        log_x: Logarithmic x axis.

    Raises:
        DataError: The file cannot be written.
    """
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for place, (name, curve) in enumerate(curves.items()):
        style = "--" if name.endswith("(paper)") else "-"
        marker = "o" if len(curve.x) <= 30 else None
        axes.errorbar(
            curve.x, curve.y, curve.error, label=name, color=f"C{place % 10}", linestyle=style,
            marker=marker, markersize=4, capsize=3, linewidth=1.4,
        )  # fmt: skip
    if log_x:
        axes.set_xscale("log")
        ticks = sorted({one for curve in curves.values() for one in curve.x})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3)
    if len(curves) > 1:
        axes.legend(fontsize="small")
    save_png(figure, path)


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure without the name and version of what drew it.

    Raises:
        DataError: The file cannot be written.
    """
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png", metadata={"Software": None})
