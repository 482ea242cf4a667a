"""Draws heat maps of attention and line charts from arrays and numbers, which are not changed.

The same numbers give the same bytes of a PNG file, because it does not name the software. Every drawing
raises ConfigError if the file ending is not a picture format, and DataError if the file cannot be written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from tokenizers.decoders import ByteLevel

from syntaxformer.base.errors import ConfigError, needs_extra
from syntaxformer.base.files import atomic_file

with needs_extra("plots", "draws pictures"):
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from syntaxformer.study.attention import CrossAttentionMap, SubnetworkView

PIECE_INCHES = 0.32
_MARK = re.compile("^(?:Ġ+|▁+|##)(?=.)")


def piece_in_letters(piece: str) -> str:
    """A piece as the text has it: without its tokenizer's mark of a space or of a word's later pieces.

    Byte-level tokenizers write the bytes of letters beyond ASCII; part of a letter stays as they write it.
    """
    bare = _MARK.sub("", piece)
    letters = ByteLevel().decode([bare])
    return letters if letters.strip() and "\ufffd" not in letters else bare


_LEGEND_LETTERS, _LEGEND_INCHES = 24, 0.17
"""Letters in a line of a legend, so that it takes less than a third of a figure, and the height of a line."""


def draw_attention(
    maps: Mapping[str, CrossAttentionMap], path: Path, layer: int = -1, head: int | None = None
) -> None:
    """Draw heat maps side by side: rows are target pieces, columns source pieces with tags; PNG, PDF or SVG.

    Rings are the links of the head that aligns.

    Source: Sundararaman et al. (2019), figure 3.

    Raises:
        ConfigError: The file ending is not a picture format.
        DataError: The file cannot be written.
    """
    columns = sum(len(shown.src_pieces) for shown in maps.values())
    rows = max(len(shown.tgt_pieces) for shown in maps.values())
    figure = Figure(figsize=(3 + PIECE_INCHES * columns, 2 + PIECE_INCHES * rows), layout="constrained")
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    for panel, (title, shown) in zip(panels, maps.items(), strict=True):
        drawn = panel.imshow(shown.average(layer, head), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        if shown.linked is not None:
            panel.plot(shown.linked, range(len(shown.linked)), "o", color="tab:orange", fillstyle="none")
        tags = shown.factors.get("pos") or ["<none>"] * len(shown.src_pieces)
        labels = [
            piece if tag == "<none>" else f"{piece} {tag}"
            for piece, tag in zip(map(piece_in_letters, shown.src_pieces), tags, strict=True)
        ]
        panel.set_xticks(range(len(labels)), labels, rotation=90)
        panel.set_yticks(range(len(shown.tgt_pieces)), list(map(piece_in_letters, shown.tgt_pieces)))
        panel.set_title(title)
        panel.set_xlabel("source")
    panels[0].set_ylabel("target")
    figure.colorbar(drawn, ax=panels, label="attention")
    _save(figure, path)


def draw_subnetwork(
    view: SubnetworkView,
    path: Path,
    network: int,
    layer: int = -1,
    n_networks: int = 12,
    head: int | None = None,
    plain: Mapping[str, NDArray[np.float32]] | None = None,
) -> None:
    """Draw a sub-network's attention, plain attention of the same layer, and topical weights by layer.

    `plain` is the name and attention of another model (`plain_attention_beside`); without it, the infused
    model's logits without masks are used. Weights are those of this and the strongest sub-networks.

    Source: Bai et al. (2021), figure 2.

    Raises:
        ConfigError: The file ending is not a picture format.
        DataError: The file cannot be written.
    """
    inches = 2.5 + PIECE_INCHES * len(view.pieces)
    figure = Figure(figsize=(2.6 * inches + 3, inches), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    number = view.layers[layer]
    weight = float(view.topical_weights()[layer, network])
    unmasked = {"the same logits without masks": view.plain_attention(layer, head)}
    ((name, beside),) = (plain or unmasked).items()
    title = f"{view.networks[network]}, layer {number}, weight {weight:.3f}"
    maps = {title: view.sub_attention(layer, network, head), f"{name}, layer {number}": beside}
    pieces, even = list(map(piece_in_letters, view.pieces)), 1 / len(view.pieces)
    # Weights that are all equal have half the colour.
    top = min(1.0, max(2 * even, *(float(weights.max()) for weights in maps.values())))
    for panel, (title, weights) in zip((left, middle), maps.items(), strict=True):
        drawn = panel.imshow(weights, cmap="Blues", vmin=0, vmax=top, aspect="equal")
        label = f"attention, 0 to {top:.2g}; an even spread is {even:.2g}"
        figure.colorbar(drawn, ax=panel, shrink=0.6, label=label)
        panel.set_xticks(range(len(pieces)), pieces, rotation=90)
        panel.set_yticks(range(len(pieces)), pieces)
        panel.set_title(title)
    shown = list(dict.fromkeys([network, *view.strongest(n_networks)]))[:n_networks]
    topical, even = view.topical_weights()[:, shown].T, 1 / len(view.networks)
    top = min(1.0, max(2 * even, float(topical.max())))
    drawn = right.imshow(topical, cmap="Oranges", vmin=0, vmax=top, aspect="auto")
    right.set_yticks(range(len(shown)), [view.networks[network] for network in shown])
    right.set_xticks(np.arange(len(view.layers)), list(map(str, view.layers)))
    right.set_xlabel("layer")
    right.set_title("topical weight, mean over pieces")
    figure.colorbar(drawn, ax=right, label=f"0 to {top:.2g}; an even spread is {even:.2g}")
    _save(figure, path)


@dataclass(frozen=True)
class Curve:
    """The points of one line, with half the height of their error bars if they have any, or of a band."""

    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None
    is_band: bool = False


def draw_curves(
    curves: Mapping[str, Curve], path: Path, x_label: str, y_label: str, log_x: bool = False
) -> None:
    """Draw one line with error bars for each name; a line is dashed if its name ends in "(paper)".

    Raises:
        ConfigError: The file ending is not a picture format.
        DataError: The file cannot be written.
    """
    names = {name: fill(name, _LEGEND_LETTERS) for name in curves}
    n_lines = sum(name.count("\n") + 1 for name in names.values())
    figure = Figure(figsize=(7, max(4.2, 0.5 + n_lines * _LEGEND_INCHES)), layout="constrained")
    axes = figure.subplots()
    _draw_lines(axes, {names[name]: curve for name, curve in curves.items()})
    if log_x:
        axes.set_xscale("log")
        ticks = sorted({x for curve in curves.values() for x in curve.x})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    elif all(float(x).is_integer() for curve in curves.values() for x in curve.x):
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if len(curves) > 1:
        figure.legend(loc="outside right upper", fontsize="small")
    _save(figure, path)


def draw_points(points: Mapping[str, Sequence[float]], path: Path, y_label: str) -> None:
    """Draw the values of each name as points in a row of their own, with a line at their mean.

    Raises:
        ConfigError: The file ending is not a picture format.
        DataError: The file cannot be written.
    """
    names = [fill(name, 2 * _LEGEND_LETTERS) for name in points]
    n_lines = sum(name.count("\n") + 1 for name in names)
    figure = Figure(figsize=(7, 1 + max(0.4 * len(names), n_lines * _LEGEND_INCHES)), layout="constrained")
    axes = figure.subplots()
    for row, values in enumerate(points.values()):
        middle = (len(values) - 1) / 2  # points side by side, so that equal ones are seen
        heights = [row + 0.5 * (number - middle) / len(values) for number in range(len(values))]
        axes.plot(sorted(values), heights, "o", markersize=4, color=f"C{row % 10}", alpha=0.7)
        axes.vlines(sum(values) / len(values), row - 0.35, row + 0.35, color=f"C{row % 10}", linewidth=2)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(y_label)
    axes.grid(alpha=0.3)
    _save(figure, path)


def draw_panels(panels: Mapping[str, Mapping[str, Curve]], path: Path) -> None:
    """Draw a panel for each logged number over updates, at most three in a row: name → run → its curve.

    Raises:
        ConfigError: The file ending is not a picture format.
        DataError: The file cannot be written.
    """
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    runs = dict.fromkeys(run for curves in panels.values() for run in curves)
    colours = {run: f"C{number % 10}" for number, run in enumerate(runs)}
    figure = Figure(figsize=(1 + 4 * columns, 0.6 + 3 * rows), layout="constrained")
    for number, (name, curves) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, columns, number)
        _draw_lines(axes, curves, colours)
        axes.set_title(name)
        axes.set_xlabel("update")
    if len(colours) > 1:
        handles = [Line2D([], [], color=colour) for colour in colours.values()]
        figure.legend(handles, list(colours), loc="outside upper center", fontsize="small")
    _save(figure, path)


def _draw_lines(axes: Axes, curves: Mapping[str, Curve], colours: Mapping[str, str] | None = None) -> None:
    for number, (name, curve) in enumerate(curves.items()):
        colour = (colours or {}).get(name, f"C{number % 10}")
        style = "--" if name.endswith("(paper)") else "-"
        marker = "o" if len(curve.x) <= 30 else None
        if curve.is_band and curve.error is not None:
            low, high = np.subtract(curve.y, curve.error), np.add(curve.y, curve.error)
            axes.fill_between(curve.x, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.errorbar(
            curve.x, curve.y, None if curve.is_band else curve.error, label=name, color=colour,
            linestyle=style, marker=marker, markersize=4, capsize=3, linewidth=1.4,
        )  # fmt: skip
    axes.grid(alpha=0.3)


def _save(figure: Figure, path: Path) -> None:
    ending, known = path.suffix.lower().removeprefix("."), figure.canvas.get_supported_filetypes()
    if ending not in known:
        raise ConfigError(
            f"figure: expected a file ending of {', '.join(sorted(known))}, got {path.name}. Use .png."
        )
    with atomic_file(path) as temporary:
        metadata = {"Software": None} if ending == "png" else None
        figure.savefig(temporary, dpi=120, format=ending, metadata=metadata)
