"""Fetch the log of a home into an empty directory, without leading it: the raw material of a copy."""

from __future__ import annotations

from typing import NamedTuple

from tenure.chain.catch_up import CatchUp
from tenure.chain.chain import Chain
from tenure.chain.home import find_home
from tenure.chain.notes import begin_notes
from tenure.chain.settings import ChainSettings
from tenure.errors import NotFound
from tenure.log.disk import Disk
from tenure.log.interface import Position
from tenure.log.recovery import Scan
from tenure.log.segment import list_heads
from tenure.objects.background import background
from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectStore

__all__ = ["Fetched", "fetch_log"]


class Fetched(NamedTuple):
    """Where a fetched log ends, and its last epoch."""

    end: Position
    epoch: int


def fetch_log(store: ObjectStore, disk: Disk, settings: ChainSettings) -> Fetched:
    """Bring everything that a home has confirmed into an empty disk; a leader may go on meanwhile.

    Raises NotFound where there is no home, or nothing in it yet, Corrupt where it is damaged, OSError.
    """
    retrying = RetryingStore(Metered(store, StoreMetrics()), settings)
    background().run(_fetch(retrying, disk, settings))
    heads = list_heads(disk)
    if not heads:
        raise NotFound(f"the home {store.url} holds no log yet", code="no_log", url=store.url)
    scan = Scan(disk, heads)
    for _ in scan.frames():
        pass
    return Fetched(scan.end, scan.epoch)


async def _fetch(store: RetryingStore, disk: Disk, settings: ChainSettings) -> None:
    facts = await find_home(store)
    if facts is None:
        raise NotFound(f"there is no home under {store.store.url}", code="no_home", url=store.store.url)
    chain = Chain(store, bytes.fromhex(facts.log_id), settings)
    await CatchUp(disk, save=lambda notes: None).run(chain, begin_notes(facts, store.store.url))
