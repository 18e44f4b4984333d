"""Small plots: inline SVG shapes that stretch to any width, with HTML labels that stay readable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tenure.spark.report.page.markup import Html, tag, text, words
from tenure.spark.report.page.units import amount

__all__ = ["Bar", "Series", "bars", "histogram", "lines", "sparkline"]

_HIGH: Final = 100.0
_LABELS_MAX: Final = 5


class Series(NamedTuple):
    """Numbers over time, and how they are drawn: ``colour`` is a name of the style sheet."""

    name: str
    colour: str
    values: Sequence[float]
    filled: bool = False


class Bar(NamedTuple):
    """One horizontal bar: its name, its length, and the text after it; ``parts`` colour it from the left."""

    label: str
    parts: Sequence[tuple[str, float]]
    value: str


def lines(series: Sequence[Series], labels: Sequence[str], *, unit: str) -> Html:
    """Return lines over time, with a legend. All series have one value per label."""
    top = _round_up(max((max(each.values, default=0) for each in series), default=0))
    shapes = [_line(each, top) for each in series]
    drawing = _svg(_grid(), *shapes, label=f"{', '.join(each.name for each in series)}: {unit} over time")
    legend = words(tag("li", tag("i", class_=each.colour), each.name) for each in series)
    return words([tag("ul", legend, class_="legend"), _frame(drawing, labels, top=top, unit=unit)])


def histogram(
    counts: Sequence[float], labels: Sequence[str], *, colour: str, unit: str, hints: Sequence[str] = ()
) -> Html:
    """Return columns side by side, one per label; ``hints`` are shown when the reader points at a column."""
    top = _round_up(max(counts, default=0))
    width = 1000 / max(len(counts), 1)
    columns = []
    for place, count in enumerate(counts):
        high = _HIGH * count / top if top else 0
        high = max(high, 1.0) if count else 0
        hint = [tag("title", hints[place])] if hints else []
        columns.append(
            tag(
                "rect",
                *hint,
                class_=f"fill {colour}",
                x=f"{place * width + width * 0.06:.2f}",
                y=f"{_HIGH - high:.2f}",
                width=f"{width * 0.88:.2f}",
                height=f"{high:.2f}",
            )
        )
    drawing = _svg(_grid(), *columns, label=unit)
    return _frame(drawing, labels, top=top, unit=unit, each=True)


def bars(rows: Sequence[Bar]) -> Html:
    """Return horizontal bars, the longest as wide as there is room."""
    longest = max((sum(length for _, length in bar.parts) for bar in rows), default=0) or 1
    return tag("dl", *(_bar(bar, longest) for bar in rows), class_="bars")


def sparkline(values: Sequence[float], *, colour: str, hint: str) -> Html:
    """Return a line as small as a word."""
    top = max(values, default=0) or 1
    shape = _line(Series("", colour, values, filled=True), top)
    return _svg(tag("title", hint), shape, label=hint, class_="spark")


def _svg(*shapes: Html, label: str, class_: str | None = None) -> Html:
    """Return a drawing that fills its place; ``label`` is for screen readers."""
    whole = f"0 0 1000 {_HIGH:g}"
    return tag("svg", *shapes, class_=class_, viewBox=whole, preserveAspectRatio="none", role="img", aria_label=label)


def _bar(bar: Bar, longest: float) -> Html:
    shapes, begin = [], 0.0
    for colour, length in bar.parts:
        share = 100 * length / longest
        shapes.append(
            tag("rect", class_=f"fill {colour}", x=f"{begin:.3f}%", y=0, width=f"{share:.3f}%", height="100%")
        )
        begin += share
    drawing = tag("dd", tag("svg", *shapes, aria_hidden="true"), class_="bar")
    return tag("div", tag("dt", text(bar.label)), drawing, tag("dd", bar.value))


def _line(series: Series, top: float) -> Html:
    values = series.values if len(series.values) != 1 else [series.values[0]] * 2
    between = 1000 / max(len(values) - 1, 1)
    points = " ".join(
        f"{place * between:.1f},{_HIGH - (_HIGH * value / top if top else 0):.2f}" for place, value in enumerate(values)
    )
    line = tag("polyline", class_=f"line {series.colour}", points=points)
    if not series.filled:
        return line
    area = tag("polygon", class_=f"area {series.colour}", points=f"0,{_HIGH:g} {points} 1000,{_HIGH:g}")
    return words([area, line])


def _grid() -> Html:
    return words(tag("line", class_="grid", x1=0, x2=1000, y1=y, y2=y) for y in (0, 50, 100))


def _frame(drawing: Html, labels: Sequence[str], *, top: float, unit: str, each: bool = False) -> Html:
    """Return a drawing between its axes: three numbers at the side, a few labels below."""
    spell: Callable[[float], str] = lambda value: amount(value) if value == int(value) else f"{value:.1f}"  # noqa: E731
    side = tag("div", tag("span", spell(top)), tag("span", spell(top / 2)), tag("span", "0"), class_="side")
    shown = labels if each else _few(labels)
    below = tag("div", *(tag("span", label) for label in shown), class_="below each" if each else "below")
    return tag("div", tag("div", unit, class_="unit"), side, drawing, below, class_="plot")


def _few(labels: Sequence[str]) -> list[str]:
    """Return the first label, the last, and some evenly between."""
    if len(labels) <= _LABELS_MAX:
        return list(labels)
    last = len(labels) - 1
    return [labels[round(place * last / (_LABELS_MAX - 1))] for place in range(_LABELS_MAX)]


def _round_up(number: float) -> float:
    """Return the next round number for the top of an axis: 1, 2, 4, 6, 8 or 10 times a power of ten; at least 2."""
    power = 1.0
    while power * 10 < number:
        power *= 10
    top = next(power * step for step in (1, 2, 4, 6, 8, 10) if power * step >= number)
    return max(top, 2.0)
