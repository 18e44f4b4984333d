"""Numbers, times and texts as people read them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tenure.core.state.ranges import to_runs

__all__ = ["age", "clean", "count", "runs_shown", "seqs_shown", "short", "size", "spelled", "when"]

_UNITS: Final = ("KiB", "MiB", "GiB")
_SHORT_MAX: Final = 200
_RANGES_MAX: Final = 5
# What could move the cursor, colour the screen or turn the reading direction around, shown as its JSON escape instead.
_CONTROLS: Final = {
    number: f"\\u{number:04x}"
    for number in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def size(count: int) -> str:
    """A number of bytes as people read it."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}"


def count(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def age(ms: int) -> str:
    """A duration in its two largest units: ``850ms``, ``12s``, ``3m 20s``, ``5h 2m``, ``4d 7h``."""
    if ms < 1000:
        return f"{ms}ms"
    seconds = ms // 1000
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60}s"
    if seconds < 86_400:
        return f"{seconds // 3600}h {seconds % 3600 // 60}m"
    return f"{seconds // 86_400}d {seconds % 86_400 // 3600}h"


def when(ms: int | None) -> str:
    """A moment in UTC to the millisecond; nothing for none."""
    if not ms:
        return ""
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError):
        return str(ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}Z"


def clean(text: str) -> str:
    """A text of somebody else that may go to a terminal: no control characters, so one line."""
    return text.translate(_CONTROLS)


def short(text: str) -> str:
    """The beginning of a text, cleaned; an ellipsis where there is more."""
    return clean(text if len(text) <= _SHORT_MAX else text[:_SHORT_MAX] + "…")


def spelled(path: Path) -> str:
    """A path as text, also where its bytes are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def seqs_shown(seqs: list[int]) -> str:
    """Seqs as ranges: ``1-4, 9``."""
    return runs_shown(to_runs(seqs))


def runs_shown(runs: list[int]) -> str:
    """The same from ``[first, count, first, count, …]``."""
    pairs = list(zip(runs[::2], runs[1::2], strict=True))
    shown = [str(first) if many == 1 else f"{first}-{first + many - 1}" for first, many in pairs[:_RANGES_MAX]]
    more = len(pairs) - _RANGES_MAX
    return ", ".join(shown) + (f" and {more:,} more ranges" if more > 0 else "")
