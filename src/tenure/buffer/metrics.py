"""The buffer's metrics: plain counters."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.objects.metered import StoreMetrics

__all__ = ["BufferMetrics"]


class BufferMetrics(StoreMetrics):
    """Counters since the start of one producer, consumer or collector. ``snapshot`` adds figures derived from them."""

    started_ms: int = 0
    # Producing
    calls: int = 0
    entries: int = 0
    entry_bytes: int = 0
    batches: int = 0
    batch_bytes: int = 0
    batches_failed: int = 0
    reuploads: int = 0
    flush_ms_total: float = 0.0
    unflushed_since_ms: int = 0
    inflight_bytes: int = 0
    away_since_ms: int = 0
    # The manifest
    commits: int = 0
    commit_ms_total: float = 0.0
    commit_ms_max: float = 0.0
    conflicts: int = 0
    deltas_read: int = 0
    checkpoints: int = 0
    runs: int = 0
    upkeep_failures: int = 0
    damaged_checkpoints: int = 0
    # Consuming
    batches_fetched: int = 0
    entries_fetched: int = 0
    bytes_fetched: int = 0
    acks: int = 0
    quarantined: int = 0
    frontier: int = -1
    lag_batches: int = 0
    lag_ms: int = 0
    # Collecting
    collected_objects: int = 0
    collected_bytes: int = 0
    collector_failures: int = 0
    freed_deltas: int = 0

    def snapshot(self, now_ms: int) -> dict[str, Any]:
        """Return everything as plain values, with requests per GB, objects per hour and the oldest unflushed age."""
        requests = sum(self.requests.values())
        moved = max(self.entry_bytes, self.bytes_fetched)
        hours = max(now_ms - self.started_ms, 1) / 3_600_000
        return {
            **msgspec.structs.asdict(self),
            "requests": dict(self.requests),
            "requests_total": requests,
            "requests_per_gb": requests / (moved / 1e9) if moved else 0.0,
            "objects_per_hour": self.objects_created / hours,
            "compression": self.batch_bytes / self.entry_bytes if self.entry_bytes else 0.0,
            "flush_ms": self.flush_ms_total / self.batches if self.batches else 0.0,
            "commit_ms": self.commit_ms_total / self.commits if self.commits else 0.0,
            "store_away_ms": max(0, now_ms - self.away_since_ms) if self.away_since_ms else 0,
            "oldest_unflushed_ms": max(0, now_ms - self.unflushed_since_ms) if self.unflushed_since_ms else 0,
        }
