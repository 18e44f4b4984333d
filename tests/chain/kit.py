"""Logs whose home is a simulated store."""

from __future__ import annotations

from collections.abc import Callable

from tenure.chain.open import open_shipped
from tenure.chain.settings import ChainSettings
from tenure.chain.shipped import ShippedLog
from tenure.clock import Clock, SystemClock
from tenure.log.disk import Disk
from tenure.objects.store import ObjectStore

SEGMENT_BYTES = 4096
FAST = ChainSettings(silence_ms=3, hint_ms=1, backoff_ms=0, backoff_ms_max=1)


def open_log(
    store: ObjectStore,
    disk: Disk,
    *,
    settings: ChainSettings = FAST,
    clock: Clock | None = None,
    is_over: Callable[[], bool] = lambda: False,
    beats: bool = False,
    url: str = "",
) -> ShippedLog:
    """Lead the home; the log is not replayed yet."""
    return open_shipped(
        store,
        disk,
        settings=settings,
        clock=clock or SystemClock(),
        segment_bytes=SEGMENT_BYTES,
        url=url,
        is_over=is_over,
        beats=beats,
    )


def opener(store: ObjectStore, disk: Disk) -> Callable[[], ShippedLog]:
    """Return what a broker opens its log with."""
    return lambda: open_log(store, disk)
