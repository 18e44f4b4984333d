"""Numbers with their units, short enough for a plot and a tile."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = ["amount", "clock", "duration", "moment", "share", "shorten"]

_SCALES: Final = ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k"))
_CONTROLS: Final = dict.fromkeys(
    (*range(0x20), *range(0x7F, 0xA0), *range(0x200E, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "�"
)


def amount(number: float) -> str:
    """Format a count: ``9,817``, ``12.3 k``, ``4.1 M``."""
    for scale, letter in _SCALES:
        if abs(number) >= scale:
            scaled = number / (1_000 if letter == "k" else scale)
            short = f"{scaled:.1f}".removesuffix(".0") if scaled < 100 else f"{scaled:,.0f}"
            return f"{short} {letter}"
    return f"{number:,.0f}" if number == int(number) else f"{number:,.1f}"


def duration(ms: float | None) -> str:
    """Format a duration, to two digits or more: ``7 ms``, ``1.4 s``, ``12 min``, ``3.5 h``, ``2.1 d``."""
    if ms is None:
        return "–"
    for limit, divisor, unit in ((1_000, 1, "ms"), (60_000, 1_000, "s"), (3_600_000, 60_000, "min")):
        if ms < limit:
            return f"{_two(ms / divisor)} {unit}"
    return f"{_two(ms / 3_600_000)} h" if ms < 48 * 3_600_000 else f"{_two(ms / 86_400_000)} d"


def _two(number: float) -> str:
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.1f}".removesuffix(".0")


def share(part: float, whole: float) -> str:
    """Format a part of a whole in percent; never rounded to nothing or to all where it is not."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    if part and percent < 0.1:
        return "< 0.1 %"
    if part != whole and percent > 99.9:
        return "> 99.9 %"
    return f"{percent:.0f} %" if percent >= 10 or percent == int(percent) else f"{percent:.1f} %"


def moment(ms: int) -> str:
    """Format a moment in UTC, to the second."""
    return f"{_date(ms):%Y-%m-%d %H:%M:%S}"


def clock(ms: int, *, step_ms: int) -> str:
    """Format a point of time on an axis whose points are ``step_ms`` apart."""
    if step_ms >= 86_400_000:
        return f"{_date(ms):%Y-%m-%d}"
    if step_ms >= 1_800_000:
        return f"{_date(ms):%d %b %H:%M}"
    return f"{_date(ms):%H:%M}" if step_ms >= 60_000 else f"{_date(ms):%H:%M:%S}"


def _date(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def shorten(text: str, length_max: int = 60) -> str:
    """Shorten text from outside for a page or a plot: one line, no control characters, cut with an ellipsis."""
    plain = text.translate(_CONTROLS)
    return plain if len(plain) <= length_max else plain[: length_max - 1] + "…"
