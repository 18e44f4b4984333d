"""An exporter whose log has a home: a new machine goes on where the lost one stopped, each event once."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from tenure import Broker
from tenure.errors import Conflict
from tenure.export.home_intents import HomeIntents
from tenure.export.intents import Intent
from tenure.export.rows import Place
from tenure.log import Position, PosixDisk
from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import open_store
from tenure.testing.simstore import SimStore
from tests.chain.kit import FAST, open_log
from tests.export.reading import rows_in
from tests.export.test_exporter import export


def intent(ordinal: int, batch: int) -> Intent:
    return Intent(ordinal, Place(Position(1, 48, batch)), Place(Position(1, 96, batch + 1)), 7)


def intents(store: SimStore, *, ordinal: int) -> HomeIntents:
    return HomeIntents(RetryingStore(Metered(store, StoreMetrics()), FAST), "buffer-1", ordinal=ordinal)


def test_the_intents_around_the_last_call_are_found_again_and_older_ones_go():
    store = SimStore()
    mine = intents(store, ordinal=-1)
    for ordinal in range(5):
        mine.write(intent(ordinal, ordinal))
    assert [each.ordinal for each in intents(store, ordinal=3).known] == [4, 3]
    assert [each.ordinal for each in intents(store, ordinal=4).known] == [4]
    assert len(store.objects) == 2


def test_an_exporter_that_was_overtaken_does_not_make_another_call_under_the_same_number():
    store = SimStore()
    first, second = intents(store, ordinal=-1), intents(store, ordinal=-1)
    first.write(intent(0, 10))
    second.write(intent(0, 10))
    first.write(intent(1, 11))
    with pytest.raises(Conflict) as caught:
        second.write(intent(1, 12))
    assert caught.value.code == "export_overtaken"
    assert intents(store, ordinal=0).known[0] == intent(1, 11)


async def life(data: Path, store: str, *, jobs: int) -> None:
    """Lead the home with a directory, put some jobs, and end without closing anything."""
    broker = await Broker.open(partial(open_log, open_store(store), PosixDisk(data)))
    await broker.put_topic("mail", {"type": "queue", "durability": "fsync"})
    for number in range(jobs):
        await broker.produce("mail", [b"%d" % number])
    await broker.synced()
    await broker.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_new_machine_goes_on_after_the_last_call_of_the_lost_one(tmp_path: Path, when: str) -> None:
    home, url = (tmp_path / "home").as_uri(), (tmp_path / "events").as_uri()
    await life(tmp_path / "one", home, jobs=5)
    assert not await export(tmp_path / "one", url, at=1, when=when), "the exporter dies around its first call"
    shutil.rmtree(tmp_path / "one")
    await life(tmp_path / "two", home, jobs=3)
    assert await export(tmp_path / "two", url)
    produced = [row for row in await rows_in(url) if row.event == "produced"]
    assert [row.runs for row in produced] == [[number, 1] for number in range(1, 9)]
