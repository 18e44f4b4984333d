"""Every limit and interval of the export, each with its unit in its name."""

from __future__ import annotations

import msgspec

__all__ = ["ExportSettings"]

MIB = 1024 * 1024


class ExportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may set about the export."""

    flush_ms: int = 1_000
    """How often the log is looked at; what is new then goes into the buffer together."""
    call_bytes_max: int = 4 * MIB
    """Rows handed to the buffer at once; when there are more, the next call follows at once."""
    checkpoint_bytes: int = 32 * MIB
    """The fold is kept after this much log, so that a restart need not begin at the oldest segment."""
    pinned_bytes_max: int = 1024 * MIB
    """How much more of the log is kept for an exporter that is behind; beyond it, it reports a gap."""
    restart_ms_min: int = 200
    restart_ms_max: int = 30_000
    """How long the server waits before it starts an exporter again that has ended: twice as long each time."""
