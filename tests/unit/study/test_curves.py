"""Line charts and points: the legend leaves room for the lines, and bands are drawn."""

from __future__ import annotations

import pytest

from syntaxformer.study import plots
from syntaxformer.study.plots import Curve, draw_curves, draw_points


@pytest.fixture
def drawn(monkeypatch):
    figures = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: figures.append(figure))
    return figures


@pytest.mark.parametrize("n_lines", [2, 8, 30])
def test_a_legend_takes_no_more_than_a_third(drawn, tmp_path, n_lines):
    name = "masks (preset paper, multiplicative, distance 3), random trees of the same size, number {}"
    draw_curves({name.format(n): Curve([1, 2], [n, n]) for n in range(n_lines)}, tmp_path / "a.png", "x", "y")
    (figure,) = drawn
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.width <= figure.bbox.width / 3
    assert box.height <= figure.bbox.height
    assert len(figure.axes[0].lines) >= n_lines


def test_bands_lie_around_the_line(drawn, tmp_path):
    draw_curves({"a": Curve([1, 2], [3, 4], [1, 0.5], is_band=True)}, tmp_path / "a.png", "x", "y")
    (band,) = drawn[0].axes[0].collections
    assert {tuple(point) for point in band.get_paths()[0].vertices.tolist()} >= {
        (1, 2),
        (1, 4),
        (2, 3.5),
        (2, 4.5),
    }


def test_each_seed_is_a_point_and_the_mean_a_line(drawn, tmp_path):
    draw_points({"plain": [1.0, 3.0, 2.0], "masks": [5.0]}, tmp_path / "a.png", "accuracy")
    axes = drawn[0].axes[0]
    assert [sorted(line.get_xdata()) for line in axes.lines] == [[1, 2, 3], [5]]
    assert [collection.get_segments()[0][0][0] for collection in axes.collections] == [2, 5]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["plain", "masks"]
