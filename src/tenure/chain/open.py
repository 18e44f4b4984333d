"""Open a log whose home is in a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tenure.chain.member import Member
from tenure.chain.settings import ChainSettings
from tenure.chain.shipped import ShippedLog
from tenure.clock import Clock
from tenure.log.disk import Disk
from tenure.log.opening import opening_error, peek_features
from tenure.objects.background import background
from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.patience import Patience
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectStore

__all__ = ["locked", "open_shipped", "retrying_store"]


def retrying_store(store: ObjectStore, settings: ChainSettings) -> RetryingStore:
    """Return the store of a home, counted and retried; a request that is not answered for a beat is sent again."""
    return RetryingStore(Metered(store, StoreMetrics()), settings, patience=Patience(settings.beat_ms))


@contextmanager
def locked(disk: Disk) -> Iterator[None]:
    """Lock a directory, which stays locked unless the block raises. Raises Conflict, Corrupt, Overloaded, Closed."""
    try:
        peek_features(disk)  # before anything is changed
        disk.lock()
        try:
            yield
        except BaseException:
            disk.unlock()
            raise
    except OSError as error:
        raise opening_error("opening the log", error) from error


def open_shipped(
    store: ObjectStore,
    disk: Disk,
    *,
    settings: ChainSettings,
    clock: Clock,
    segment_bytes: int,
    url: str = "",
    is_over: Callable[[], bool] = lambda: False,
    beats: bool = False,
) -> ShippedLog:
    """Lock a directory, bring it up to its home, lead alone, and return the log; its replay must be exhausted first.

    It waits for the store, so it belongs into a thread. ``url`` is where clients reach this process; ``is_over`` is
    asked while a link is under way whether to give up; ``beats`` is for a leader that others follow.
    Raises Conflict, Corrupt, Overloaded, Closed, OutcomeUnknown.
    """
    with locked(disk):
        retrying = retrying_store(store, settings)
        member = Member(retrying, disk, settings=settings, clock=clock, url=url, is_over=is_over, beats=beats)
        leadership, notes = background().run(member.lead())
        return ShippedLog.lead(disk, leadership, notes, segment_bytes=segment_bytes)
