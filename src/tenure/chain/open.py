"""Open a log whose home is in a store."""

from __future__ import annotations

from collections.abc import Callable

from tenure.chain.member import Member
from tenure.chain.settings import ChainSettings
from tenure.chain.shipped import ShippedLog
from tenure.clock import Clock
from tenure.log.disk import Disk
from tenure.log.opening import opening_error, peek_features
from tenure.objects.background import background
from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectStore

__all__ = ["open_shipped"]


def open_shipped(
    store: ObjectStore,
    disk: Disk,
    *,
    settings: ChainSettings,
    clock: Clock,
    segment_bytes: int,
    url: str = "",
    is_over: Callable[[], bool] = lambda: False,
) -> ShippedLog:
    """Lock a directory, bring it up to its home, lead, and return the log; its replay must be exhausted first.

    It waits for the store, so it belongs into a thread. ``url`` is where clients reach this process; ``is_over`` is
    asked while a link is under way whether to give up. Raises Conflict, Corrupt, Overloaded, Closed, OutcomeUnknown.
    """
    try:
        peek_features(disk)  # before anything is changed
        disk.lock()
        try:
            retrying = RetryingStore(Metered(store, StoreMetrics()), settings)
            member = Member(retrying, disk, settings=settings, clock=clock, url=url, is_over=is_over)
            leadership = background().run(member.lead())
            assert member.notes is not None, "a leader has notes"
            return ShippedLog.lead(disk, leadership, member.notes, segment_bytes=segment_bytes)
        except BaseException:
            disk.unlock()
            raise
    except OSError as error:
        raise opening_error("opening the log", error) from error
