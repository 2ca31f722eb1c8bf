"""Numbers to charts for pages: scales, nice ticks and positions are worked out here, templates only print them.

The macros of `plots.html.j2` draw what these functions return. Positions are in units of a drawing that is `WIDTH`
wide; the page scales it as a whole, so that its text stays readable from 400 pixels up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

WIDTH = 400
"""Units: about a pixel each on a telephone."""
PLOT_HEIGHT = 190
LETTER = 8.6
"""Width of a letter in units, on the safe side, at the size of the template's text."""
LINE = 18
"""Height of a line of text."""
EDGE = 12
"""Room at the right, half a tick label among it."""
TICKS = 5
"""Ticks of an axis, at most one more."""
STYLES = 6
"""Colours and dashes of series; a seventh looks like the first."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart."""

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    """None: a gap."""
    lower: tuple[float, ...] | None = None
    """Lower edge of a band, one a point; needs `upper`."""
    upper: tuple[float, ...] | None = None
    dots: bool = False
    """Whether each point gets a dot with a tooltip: for a few points."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a scatter plot."""

    x: float
    y: float
    label: str = ""
    """For the tooltip."""
    group: int = 0
    """0 to 5: its colour, and its place in the legend."""
    lower: float | None = None
    """Lower end of a vertical error bar; needs `upper`."""
    upper: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at a value of the x axis."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale from values to positions."""

    first: Fraction
    last: Fraction
    start: float
    """Position of `first`."""
    end: float

    def at(self, value: float | Fraction) -> float:
        """Position of a value."""
        share = (Fraction(value) - self.first) / (self.last - self.first)
        return self.start + float(share) * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick of an axis."""

    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A point as drawn."""

    x: str
    y: str
    style: int
    title: str
    bar: tuple[str, str] | None = None
    """Ends of its error bar, on the y axis."""


@dataclass(frozen=True, slots=True)
class Path:
    """A line or a band as drawn: corners as SVG writes them."""

    points: str
    style: int


@dataclass(frozen=True, slots=True)
class Chart:
    """A line chart or a scatter plot as drawn."""

    title: str
    spoken: str
    """What a screen reader says."""
    height: int
    left: str
    top: str
    right: str
    bottom: str
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    bands: tuple[Path, ...]
    lines: tuple[Path, ...]
    dots: tuple[Dot, ...]
    marks: tuple[Tick, ...]
    diagonal: tuple[str, str, str, str] | None
    """x1, y1, x2, y2 of the line where both axes have the same value."""
    legend: tuple[tuple[str, int], ...]
    """Name and style; empty where there is but one series."""


# --- scales ----------------------------------------------------------------------------------------------------------
def nice_ticks(low: float, high: float, whole: bool = False, most: int = TICKS) -> tuple[Fraction, ...]:
    """Multiples of 1, 2 or 5 times a power of ten that span `low` to `high`, exactly.

    Args:
        whole: Whether only integers make sense.
        most: Intervals between ticks, at most.

    Returns:
        At least two, the first at or below `low`, the last at or above `high`.

    Raises:
        ValueError: An end is no finite number, or low > high.
    """
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise ValueError(f"no axis spans {low} to {high}")
    first, last = (Fraction(repr(float(end))) for end in (low, high))
    if first == last:
        room = Fraction(1) if whole or first == 0 else abs(first) / 10
        first, last = first - room, last + room
    step = _power_of_ten((last - first) / most)
    while True:
        for factor in (1, 2, 5):
            size = step * factor
            if whole and size < 1:
                continue
            start, end = math.floor(first / size), math.ceil(last / size)
            if end - start <= most + 1:
                return tuple(size * place for place in range(start, end + 1))
        step *= 10


def _power_of_ten(value: Fraction) -> Fraction:
    """The largest power of ten that is not above a positive value."""
    exponent = math.floor(math.log10(value.numerator) - math.log10(value.denominator))
    power = Fraction(10) ** exponent
    while power > value:
        power /= 10
    while power * 10 <= value:
        power *= 10
    return power


def tick_texts(ticks: Sequence[Fraction], percent: bool = False) -> list[str]:
    """Ticks as text, all with the decimals that their step needs; very large and very small ones with an exponent."""
    shown = [tick * 100 for tick in ticks] if percent else list(ticks)
    step, largest = shown[1] - shown[0], max(map(abs, shown))
    decimals = 0
    while (step * 10**decimals).denominator != 1 and decimals < 12:
        decimals += 1
    unit = " %" if percent else ""
    if largest >= 10**6 or decimals > 5:
        return [(f"{float(tick):.3g}" if tick else "0") + unit for tick in shown]
    return [f"{tick:,.{decimals}f}{unit}" for tick in map(float, shown)]


def number(value: float, percent: bool = False) -> str:
    """A value for a tooltip or a cell: four significant digits, no figure to rely on."""
    text = f"{100 * value if percent else value:.4g}"
    return f"{text} %" if percent else text


def position(value: float) -> str:
    """A position as SVG writes it."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


# --- charts ----------------------------------------------------------------------------------------------------------
def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    marks: Sequence[Mark] = (),
    percent: bool = False,
    zero: bool = False,
) -> Chart:
    """Lines over a common x axis, each with a band if it has one.

    Args:
        marks: Vertical lines with a label.
        percent: Whether values are shares that the y axis shows in percent.
        zero: Whether the y axis begins at 0 (or ends there) even if no value does.

    Raises:
        ValueError: There is no point, lengths differ, or a value is not finite.
    """
    for one in series:
        if len(one.x) != len(one.y) or any(edge is not None and len(edge) != len(one.x) for edge in _edges(one)):
            raise ValueError(f"{one.name}: lists of different lengths")
    xs = [x for one in series for x in one.x] + [mark.x for mark in marks]
    ys = [y for one in series for values in (one.y, *_edges(one)) for y in values or () if y is not None]
    frame = _Frame(xs, ys, percent=(False, percent), zero=zero)
    x, y = frame.x, frame.y
    bands, lines, dots = [], [], []
    for place, one in enumerate(series):
        style = place % STYLES
        if one.lower is not None and one.upper is not None:
            edge = [*zip(one.x, one.lower, strict=True), *reversed(list(zip(one.x, one.upper, strict=True)))]
            bands.append(Path(_corners(edge, x, y), style))
        lines += [Path(_corners(part, x, y), style) for part in _parts(one)]
        if one.dots:
            dots += [
                Dot(position(x.at(a)), position(y.at(b)), style,
                    f"{one.name}: {number(b, percent)} at {number(a)}")
                for a, b in zip(one.x, one.y, strict=True) if b is not None
            ]  # fmt: skip
    names = ", ".join(one.name for one in series)
    return frame.chart(
        title, x_label, y_label, names,
        bands=tuple(bands), lines=tuple(lines), dots=tuple(dots),
        marks=tuple(Tick(position(x.at(mark.x)), mark.label) for mark in marks),
        legend=tuple((one.name, place % STYLES) for place, one in enumerate(series)) if len(series) > 1 else (),
    )  # fmt: skip


def scatter(
    title: str,
    points: Sequence[Point],
    *,
    x_label: str,
    y_label: str,
    groups: Sequence[str] = (),
    diagonal: bool = False,
    percent: tuple[bool, bool] = (False, False),
) -> Chart:
    """Points, each with a vertical error bar if it has one.

    Args:
        groups: Names for the legend, by `Point.group`.
        diagonal: Draw the line where x = y; both axes then span the same values.
        percent: Whether the x and the y axis are shares shown in percent.

    Raises:
        ValueError: There is no point, or a value is not finite.
    """
    xs = [point.x for point in points]
    ys = [y for point in points for y in (point.y, point.lower, point.upper) if y is not None]
    if diagonal:
        xs = ys = xs + ys
    frame = _Frame(xs, ys, percent=percent)
    x, y = frame.x, frame.y
    dots = tuple(
        Dot(
            position(x.at(point.x)), position(y.at(point.y)), point.group % STYLES,
            f"{point.label or 'point'}: {number(point.x, percent[0])}, {number(point.y, percent[1])}",
            None if point.lower is None or point.upper is None
            else (position(y.at(point.lower)), position(y.at(point.upper))),
        )
        for point in points
    )  # fmt: skip
    ends = (x.at(x.first), y.at(x.first), x.at(x.last), y.at(x.last)) if diagonal else None
    return frame.chart(
        title, x_label, y_label, f"{len(points):,} points",
        dots=dots,
        diagonal=None if ends is None else tuple(map(position, ends)),  # type: ignore[arg-type]
        legend=tuple((name, place % STYLES) for place, name in enumerate(groups)),
    )  # fmt: skip


class _Frame:
    """Axes with their ticks, and room for their labels."""

    def __init__(
        self, xs: Sequence[float], ys: Sequence[float], percent: tuple[bool, bool], zero: bool = False
    ) -> None:
        if not xs or not ys:
            raise ValueError("a chart without a point")
        if not all(map(math.isfinite, (*xs, *ys))):
            raise ValueError("a value that is not finite")
        across = nice_ticks(min(xs), max(xs), whole=all(x == int(x) for x in xs) and not percent[0])
        ys = [*ys, 0.0] if zero else ys
        upwards = nice_ticks(min(ys), max(ys))
        self.x_texts, self.y_texts = tick_texts(across, percent[0]), tick_texts(upwards, percent[1])
        left = 6 + LETTER * max(map(len, self.y_texts))
        room = max(EDGE, LETTER * len(self.x_texts[-1]) / 2)
        self.x = Scale(across[0], across[-1], left, WIDTH - room)
        self.y = Scale(upwards[0], upwards[-1], LINE + 6 + PLOT_HEIGHT, LINE + 6)
        self.across, self.upwards = across, upwards

    def chart(
        self,
        title: str,
        x_label: str,
        y_label: str,
        spoken: str,
        *,
        bands: tuple[Path, ...] = (),
        lines: tuple[Path, ...] = (),
        dots: tuple[Dot, ...] = (),
        marks: tuple[Tick, ...] = (),
        diagonal: tuple[str, str, str, str] | None = None,
        legend: tuple[tuple[str, int], ...] = (),
    ) -> Chart:
        spans = [
            f"{label} from {texts[0]} to {texts[-1]}"
            for label, texts in ((x_label, self.x_texts), (y_label, self.y_texts))
        ]
        left, top, right, bottom = map(position, (self.x.start, self.y.end, self.x.end, self.y.start))
        return Chart(
            title, f"{title}: {spoken}; {', '.join(spans)}", LINE + 6 + PLOT_HEIGHT + 2 * LINE + 6,
            left, top, right, bottom, x_label, y_label,
            tuple(Tick(position(self.x.at(t)), s) for t, s in zip(self.across, self.x_texts, strict=True)),
            tuple(Tick(position(self.y.at(t)), s) for t, s in zip(self.upwards, self.y_texts, strict=True)),
            bands, lines, dots, marks, diagonal, legend,
        )  # fmt: skip


def _edges(one: Series) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    return one.lower, one.upper


def _parts(one: Series) -> Iterable[list[tuple[float, float]]]:
    """The pieces of a line between its gaps."""
    part: list[tuple[float, float]] = []
    for x, y in zip(one.x, one.y, strict=True):
        if y is not None:
            part.append((x, y))
        elif part:
            yield part
            part = []
    if part:
        yield part


def _corners(points: Iterable[tuple[float, float]], x: Scale, y: Scale) -> str:
    return " ".join(f"{position(x.at(a))},{position(y.at(b))}" for a, b in points)
