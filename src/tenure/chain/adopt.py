"""Make a home of a directory: its log, which lived on this disk alone, becomes the first epoch of a chain.

The whole log is then a tail that the chain has not got yet, and the first leader ships it as it ships any tail. A run
that was cut short goes on where it stopped.
"""

from __future__ import annotations

import secrets

from tenure.chain.home import HomeFacts, create_home, find_home
from tenure.chain.notes import begin_notes, load_notes, save_notes
from tenure.chain.open import open_shipped
from tenure.chain.place import Place
from tenure.chain.settings import ChainSettings
from tenure.clock import Clock
from tenure.errors import Conflict, NotFound
from tenure.log.disk import Disk
from tenure.log.features import FEATURES
from tenure.log.opening import load_or_create
from tenure.log.recovery import Scan
from tenure.log.segment import segment_numbers
from tenure.objects.background import background
from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.probe import probe
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectStore

__all__ = ["adopt"]


def adopt(store: ObjectStore, disk: Disk, *, settings: ChainSettings, clock: Clock, segment_bytes: int) -> Place:
    """Bring the log of a directory into an empty prefix; return the place where its chain ends.

    A directory whose home is lost gets a new one. Raises Conflict where the prefix holds anything else, or another
    process the directory; NotFound where there is no log.
    """
    retrying = RetryingStore(Metered(store, StoreMetrics()), settings)
    disk.lock()
    try:
        if load_notes(disk) is None or background().run(find_home(retrying)) is None:
            background().run(_begin(retrying, disk, clock, segment_bytes))
    finally:
        disk.unlock()
    log = open_shipped(store, disk, settings=settings, clock=clock, segment_bytes=segment_bytes)
    try:
        for _ in log.replay():
            pass
        log.seal()
        return log.leadership.place
    finally:
        log.close()


async def _begin(store: RetryingStore, disk: Disk, clock: Clock, segment_bytes: int) -> None:
    """Note the home beside the log, then create it."""
    if not segment_numbers(disk):
        raise NotFound("this directory holds no log: serve with --home, and there will be one", code="no_log")
    await probe(store)
    if await find_home(store) is not None:
        raise Conflict(f"{store.store.url} holds a log already: use an empty prefix", code="home_exists")
    heads, _ = load_or_create(disk, segment_bytes=segment_bytes, log_id=b"", epoch=0, known=FEATURES)
    scan = Scan(disk, heads)
    for _ in scan.frames():
        pass
    log_id, nonce = heads[0].log_id, secrets.token_bytes(16)
    facts = HomeFacts(log_id=log_id.hex(), epoch=scan.epoch)
    notes = begin_notes(facts, store.store.url)
    save_notes(disk, notes.with_nonce(nonce, whereabouts=""))
    await create_home(store, log_id, epoch=scan.epoch, nonce=nonce, url="", now_ms=clock.wall_ms())
