"""Every limit and time of backups and restores, in one place."""

from __future__ import annotations

import msgspec

from tenure.limits import MIB, check_limits

__all__ = ["BackupSettings"]


class BackupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and times of taking, verifying and restoring a backup."""

    piece_bytes: int = 4 * MIB
    """The bytes of one object of a file that is copied into a store, which is also what is held in memory."""
    synced_bytes: int = 1 * MIB
    """The same in a directory, where each piece is synced: a sync of the log waits for all that the disk has to do."""
    rate_bytes_max: int = 64 * MIB
    """The bytes of the log that are read in a second, so that the server beside keeps its disk; 0 is no limit."""
    held_max: int = 64
    """The segments that are held open ahead of the copy: the broker may drop them meanwhile."""
    manifest_bytes_max: int = 256 * MIB
    """The largest manifest: about 16 TiB of log."""
    call_attempts_max: int = 8
    """Attempts of one store call whose outcome is unknown, before it counts as failed."""
    backoff_ms: int = 50
    """The first wait after a failed store call; it doubles, with full jitter."""
    backoff_ms_max: int = 2_000
    """The longest wait between attempts."""

    def __post_init__(self) -> None:
        most = {"piece_bytes": 256 * MIB, "synced_bytes": 256 * MIB, "held_max": 512}
        check_limits(self, zero=("rate_bytes_max",), most=most)
