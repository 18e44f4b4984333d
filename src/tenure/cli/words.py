"""Format numbers, times and texts for people."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tenure.core.state.ranges import to_runs

__all__ = ["age", "clean", "count", "format_path", "format_runs", "format_seqs", "short", "size", "when"]

_UNITS: Final = ("KiB", "MiB", "GiB")
_SHORT_MAX: Final = 200
_RANGES_MAX: Final = 5
# Characters that move the cursor, colour the screen or change the reading direction, shown as their JSON escapes.
_CONTROLS: Final = {
    number: f"\\u{number:04x}"
    for number in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def size(count: int) -> str:
    """Format a number of bytes."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}"


def count(number: int, one: str, many: str | None = None) -> str:
    """Format a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def age(ms: int) -> str:
    """Format a duration in its two largest units: ``850ms``, ``12s``, ``3m 20s``, ``5h 2m``, ``4d 7h``."""
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
    """Format a time in UTC to the millisecond; empty for None."""
    if not ms:
        return ""
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError):
        return str(ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}Z"


def clean(text: str) -> str:
    """Escape the control characters of a foreign text for a terminal, so that it is one line."""
    return text.translate(_CONTROLS)


def short(text: str) -> str:
    """Return the cleaned beginning of a text, with an ellipsis where it is cut."""
    return clean(text if len(text) <= _SHORT_MAX else text[:_SHORT_MAX] + "…")


def format_path(path: Path) -> str:
    """Format a path, also where its bytes are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def format_seqs(seqs: list[int]) -> str:
    """Format seqs as ranges: ``1-4, 9``."""
    return format_runs(to_runs(seqs))


def format_runs(runs: list[int]) -> str:
    """Format ``[first, count, first, count, …]`` as ranges."""
    pairs = list(zip(runs[::2], runs[1::2], strict=True))
    shown = [str(first) if many == 1 else f"{first}-{first + many - 1}" for first, many in pairs[:_RANGES_MAX]]
    more = len(pairs) - _RANGES_MAX
    return ", ".join(shown) + (f" and {more:,} more ranges" if more > 0 else "")
