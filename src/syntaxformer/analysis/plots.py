"""Drawing. Takes arrays, writes files; computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from syntaxformer.analysis.attention import CrossAttentionMap
from syntaxformer.atomic import atomic_file
from syntaxformer.errors import ConfigError

__all__ = ["draw_attention"]

PIECE_INCHES = 0.32


def draw_attention(
    maps: Mapping[str, CrossAttentionMap], path: Path, layer: int = -1, head: int | None = None
) -> None:
    """Heat maps side by side, target pieces down, source pieces (with their tags) across.

    Args:
        maps: Title → attention, in the order in which they are drawn.
        path: PNG, PDF or SVG by its ending.
        layer: Layer to show, the last by default.
        head: One head; None for the mean over heads.

    Raises:
        ConfigError: The ending names no format of pictures.
        DataError: The file cannot be written.

    Source: Sundararaman et al. (2019), figure 3.
    """
    columns = sum(len(one.src_pieces) for one in maps.values())
    rows = max(len(one.tgt_pieces) for one in maps.values())
    figure = Figure(figsize=(3 + PIECE_INCHES * columns, 2 + PIECE_INCHES * rows), layout="constrained")
    known = figure.canvas.get_supported_filetypes()
    ending = path.suffix.lower().removeprefix(".")
    if ending not in known:
        raise ConfigError(
            f"figure: expected a file ending of {', '.join(sorted(known))}, got {path.name}. Use .png."
        )
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    for panel, (title, one) in zip(panels, maps.items(), strict=True):
        panel.imshow(one.average(layer, head), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        panel.set_xticks(range(len(one.src_pieces)), _labels(one), rotation=90)
        panel.set_yticks(range(len(one.tgt_pieces)), one.tgt_pieces)
        panel.set_title(title)
        panel.set_xlabel("source")
    panels[0].set_ylabel("target")
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=120, format=ending)


def _labels(one: CrossAttentionMap) -> list[str]:
    tags = one.factors.get("pos")
    if tags is None:
        return one.src_pieces
    return [
        piece if tag == "<none>" else f"{piece} {tag}"
        for piece, tag in zip(one.src_pieces, tags, strict=True)
    ]
