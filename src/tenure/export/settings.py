"""Every limit and interval of the export, each with its unit in its name."""

from __future__ import annotations

import msgspec

from tenure.errors import Invalid
from tenure.limits import MIB

__all__ = ["ExportSettings"]

_MOST = {"call_bytes_max": 64 * MIB, "call_rows_max": 1_000_000}
"""A buffer takes 128 MiB and a million entries a call, and the row that reaches a limit still belongs to the call."""


class ExportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The export's settings for an operator."""

    flush_ms: int = 1_000
    """Time between two polls of the log; what is new then goes into the buffer together."""
    call_bytes_max: int = 4 * MIB
    """Rows handed to the buffer at once, at most 64 MiB; when there are more, the next call follows at once."""
    call_rows_max: int = 100_000
    """The same in rows, at most 1,000,000."""
    checkpoint_bytes: int = 32 * MIB
    """The fold is saved after this much log, so that a restart need not begin at the oldest segment."""
    pinned_bytes_max: int = 1024 * MIB
    """The log that is kept for an exporter that is behind; beyond it, the exporter reports a gap."""
    restart_ms_min: int = 200
    restart_ms_max: int = 30_000
    """The bound of the wait before an exporter that has ended is started again: min, doubled each time, at most max."""

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            if getattr(self, name) > most:
                raise Invalid(f"export.{name} is at most {most:,}: a buffer takes no more in one call")
