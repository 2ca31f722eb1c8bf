"""Drawings for pages: ticks, positions and colours worked out by hand, and macros that print them and nothing else."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from quantify.report import plots
from quantify.report.heat_maps import heat_map
from quantify.report.plots import Mark, Point, Series
from quantify.resources import templates_dir

F = Fraction


def drawn(macro: str, plot: Any) -> ElementTree.Element:
    """The figure that a macro makes, which is well-formed XML too."""
    environment = Environment(
        loader=FileSystemLoader(templates_dir("html")), autoescape=True, undefined=StrictUndefined
    )
    text = environment.from_string(f'{{% import "plots.html.j2" as m %}}{{{{ m.{macro}(plot) }}}}').render(plot=plot)
    assert "style=" not in text
    assert "url(" not in text
    return ElementTree.fromstring(text)


@pytest.mark.parametrize(
    ("low", "high", "whole", "ticks", "texts"),
    [
        (0, 100, False, [0, 20, 40, 60, 80, 100], ["0", "20", "40", "60", "80", "100"]),
        (1, 6, True, [1, 2, 3, 4, 5, 6], ["1", "2", "3", "4", "5", "6"]),
        (1, 2, True, [1, 2], ["1", "2"]),
        (3, 3, True, [2, 3, 4], ["2", "3", "4"]),
        (0.3, 0.7, False, [F(3, 10), F(4, 10), F(5, 10), F(6, 10), F(7, 10)], ["0.3", "0.4", "0.5", "0.6", "0.7"]),
        (-0.011, 0.012, False, [F(-15, 1000), F(-1, 100), F(-5, 1000), 0, F(5, 1000), F(1, 100), F(15, 1000)],
         ["-0.015", "-0.010", "-0.005", "0.000", "0.005", "0.010", "0.015"]),
        (0, 4_000_000, False, [0, 10**6, 2 * 10**6, 3 * 10**6, 4 * 10**6], ["0", "1e+06", "2e+06", "3e+06", "4e+06"]),
        (0, 40_000, False, [0, 10**4, 2 * 10**4, 3 * 10**4, 4 * 10**4], ["0", "10,000", "20,000", "30,000", "40,000"]),
        (2e-9, 4e-9, False, [F(n, 10**10) for n in (20, 25, 30, 35, 40)],
         ["2e-09", "2.5e-09", "3e-09", "3.5e-09", "4e-09"]),
    ],
)  # fmt: skip
def test_ticks_are_round_and_span_the_values(
    low: float, high: float, whole: bool, ticks: list[Fraction], texts: list[str]
) -> None:
    found = plots.nice_ticks(low, high, whole)
    assert list(found) == ticks
    assert plots.tick_texts(found) == texts


def test_ticks_of_every_size_are_multiples_of_1_2_or_5() -> None:
    for exponent in range(-20, 20):
        for width in (1.0, 1.7, 2.3, 4.9, 7.0, 9.99):
            low = 3.3 * 10.0**exponent
            ticks = plots.nice_ticks(low, low + width * 10.0**exponent)
            step = ticks[1] - ticks[0]
            assert all(b - a == step for a, b in pairwise(ticks))
            assert all((tick / step).denominator == 1 for tick in ticks)
            digits = step / F(10) ** math.floor(math.log10(step) + 1e-9)
            assert digits in (1, 2, 5)
            assert 3 <= len(ticks) <= plots.TICKS + 2


@pytest.mark.parametrize(("low", "high"), [(math.nan, 1), (0, math.inf), (2, 1)])
def test_no_axis_spans_what_is_no_interval(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="no axis"):
        plots.nice_ticks(low, high)


def test_a_line_chart_stands_where_its_values_are() -> None:
    line = Series("a<b>", (0, 50, 100), (0.0, 1.0, 0.5), (0.0, 0.5, 0.5), (0.0, 1.0, 1.0), dots=True)
    chart = plots.line_chart("T & t", [line], x_label="x", y_label="y", marks=[Mark(50, "here")])
    # Labels at the left have 3 letters (0.0 … 1.0): 6 + 3 · 8.6 = 31.8. At the right half of "100": 1.5 · 8.6 = 12.9.
    assert [tick.text for tick in chart.y_ticks] == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    assert [tick.text for tick in chart.x_ticks] == ["0", "20", "40", "60", "80", "100"]
    assert (chart.left, chart.right, chart.top, chart.bottom) == ("31.8", "387.1", "24", "214")
    # 50 lies half-way: (31.8 + 387.1) / 2 = 209.45; 0.5 lies half-way between 214 and 24: 119.
    assert [line.points for line in chart.lines] == ["31.8,214 209.45,24 387.1,119"]
    assert [band.points for band in chart.bands] == ["31.8,214 209.45,119 387.1,119 387.1,24 209.45,24 31.8,214"]
    assert [(dot.x, dot.y) for dot in chart.dots] == [("31.8", "214"), ("209.45", "24"), ("387.1", "119")]
    assert [(mark.at, mark.text) for mark in chart.marks] == [("209.45", "here")]
    assert chart.legend == ()
    figure = drawn("chart", chart)
    assert [one.get("points") for one in figure.iter("polyline")] == ["31.8,214 209.45,24 387.1,119"]
    assert [one.get("points") for one in figure.iter("polygon")] == [chart.bands[0].points]
    assert [one.text for one in figure.iter("title")] == ["a<b>: 0 at 0", "a<b>: 1 at 50", "a<b>: 0.5 at 100"]
    texts = [one.text for one in figure.iter("text")]
    assert {"x", "y", "here", "0.2", "100"} <= set(texts)
    svg = next(figure.iter("svg"))
    assert svg.get("viewBox") == "0 0 400 256"
    assert svg.get("aria-label") == "T & t: a<b>; x from 0 to 100, y from 0.0 to 1.0"


def test_gaps_percent_and_several_series() -> None:
    first = Series("first", (1, 2, 3, 4), (0.1, None, 0.3, 0.2))
    second = Series("second", (1, 4), (0.15, 0.12))
    chart = plots.line_chart("t", [first, second], x_label="K", y_label="y", percent=True, zero=True)
    assert [tick.text for tick in chart.x_ticks] == ["1", "2", "3", "4"]
    assert [tick.text for tick in chart.y_ticks][:2] == ["0 %", "5 %"]
    assert [len(line.points.split()) for line in chart.lines] == [1, 2, 2]
    assert [line.style for line in chart.lines] == [0, 0, 1]
    assert chart.legend == (("first", 0), ("second", 1))
    figure = drawn("chart", chart)
    assert [one.get("class") for one in figure.iter("polyline")] == ["line s0", "line s0", "line s1"]
    assert "".join(figure.find("p").itertext()).split() == ["first", "second"]  # type: ignore[union-attr]


def test_a_scatter_plot_with_its_diagonal() -> None:
    points = [Point(0.2, 0.4, "day & night", 0, 0.2, 0.6), Point(0.6, 0.6, "", 1)]
    chart = plots.scatter("t", points, x_label="seen", y_label="said", groups=("a", "b"), diagonal=True)
    ticks = [0.2, 0.3, 0.4, 0.5, 0.6]
    assert [tick.text for tick in chart.y_ticks] == [tick.text for tick in chart.x_ticks] == list(map(str, ticks))
    left, right, top, bottom = map(float, (chart.left, chart.right, chart.top, chart.bottom))
    for dot, point in zip(chart.dots, points, strict=True):
        across = (point.x - ticks[0]) / (ticks[-1] - ticks[0])
        upwards = (point.y - ticks[0]) / (ticks[-1] - ticks[0])
        assert float(dot.x) == pytest.approx(left + across * (right - left), abs=0.006)
        assert float(dot.y) == pytest.approx(bottom + upwards * (top - bottom), abs=0.006)
    assert chart.diagonal == (chart.left, chart.bottom, chart.right, chart.top)
    assert chart.dots[0].bar is not None
    assert float(chart.dots[0].bar[0]) > float(chart.dots[0].y) > float(chart.dots[0].bar[1])
    assert chart.dots[1].bar is None
    figure = drawn("chart", chart)
    assert [one.text for one in figure.iter("title")] == ["day & night: 0.2, 0.4", "point: 0.6, 0.6"]
    assert [one.get("class") for one in figure.iter("circle")] == ["dot s0", "dot s1", "dot s0", "dot s1"]
    assert len([one for one in figure.iter("line") if one.get("class") == "bar s0"]) == 1


def test_a_heat_map_by_hand() -> None:
    heat = heat_map("t", ["a", "b"], ["r", "s"], [[0.0, None], [0.5, 1.0]], x_label="x", absent="untested")
    # Row names of one letter: 8 + 8.6 = 16.6 at the left, (400 − 16.6 − 2) / 2 = 190.7 a column; two lines above.
    first, gap, half, full = heat.cells
    assert (first.x, first.y, first.width, first.height) == ("16.6", "36", "190.7", "34")
    assert (full.x, full.y, full.right, full.bottom) == ("207.3", "70", "398", "104")
    assert [cell.opacity for cell in heat.cells] == ["0.080", "0", "0.540", "1.000"]
    assert [cell.text for cell in heat.cells] == ["0", "", "0.5", "1"]
    assert [cell.over for cell in heat.cells] == [False, False, False, True]
    assert (gap.kind, gap.title) == ("absent", "r, b: untested")
    assert (half.kind, half.title, heat.low, heat.high, heat.absent) == ("up", "s, a: 0.5", "0", "1", "untested")
    assert not heat.turned
    figure = drawn("heat_map", heat)
    cells = list(next(figure.iter("svg")).iter("rect"))
    assert [one.get("class") for one in cells] == ["cell up", "cell absent", "cell up", "cell up"]
    (cross,) = next(figure.iter("svg")).iter("line")
    assert [cross.get(name) for name in ("x1", "y1", "x2", "y2")] == ["207.3", "70", "398", "36"]
    assert [one.text for one in figure.iter("title")] == ["r, a: 0", "r, b: untested", "s, a: 0.5", "s, b: 1"]


def test_a_signed_heat_map() -> None:
    heat = heat_map("t", ["a", "b", "c"], ["r"], [[-1, 0, 2]], signed=True)
    assert [(cell.kind, cell.opacity) for cell in heat.cells] == [("down", "0.540"), ("up", "0.080"), ("up", "1.000")]
    assert (heat.low, heat.high, heat.absent) == ("-2", "2", "")
    assert [kind for kind, _ in heat.swatches] == ["down"] * 4 + ["up"] * 5


def test_many_columns_and_long_names_keep_room() -> None:
    names = [f"a very long name, number {i}" for i in range(120)]
    heat = heat_map("t", names, names[:40], [[0.0] * 120] * 40)
    assert heat.turned
    assert len(heat.cells) == 4800
    across = [float(name.x) for name in heat.columns]
    upwards = [float(name.y) for name in heat.rows]
    assert all(b - a >= plots.LINE - 0.02 for a, b in pairwise(across))
    assert all(b - a >= plots.LINE - 0.02 for a, b in pairwise(upwards))
    assert all(name.text == "a very long nam…" and name.title in names for name in heat.columns)
    assert all(cell.text == "" for cell in heat.cells)
    assert max(float(cell.right) for cell in heat.cells) <= plots.WIDTH
    assert max(float(cell.bottom) for cell in heat.cells) <= heat.height
    # A constant map is neither faint nor strong.
    assert {cell.opacity for cell in heat.cells} == {"0.540"}


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.line_chart("t", [], x_label="", y_label=""),
        lambda: plots.line_chart("t", [Series("s", (1, 2), (1,))], x_label="", y_label=""),
        lambda: plots.line_chart("t", [Series("s", (1, 2), (1, math.nan))], x_label="", y_label=""),
        lambda: plots.line_chart("t", [Series("s", (1,), (1,), (0, 1), (1, 2))], x_label="", y_label=""),
        lambda: plots.scatter("t", [], x_label="", y_label=""),
        lambda: plots.scatter("t", [Point(math.inf, 1)], x_label="", y_label=""),
        lambda: heat_map("t", [], [], []),
        lambda: heat_map("t", ["a"], ["r"], [[1, 2]]),
        lambda: heat_map("t", ["a"], ["r"], [[math.nan]]),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        draw()
