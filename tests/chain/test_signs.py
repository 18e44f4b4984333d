"""Signs of life: the living are seen beside any number of dead ones, and what the dead leave is removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from tenure.chain.hint import Hint
from tenure.chain.keys import MEMBERS, hint_key
from tenure.chain.open import retrying_store
from tenure.chain.settings import ChainSettings
from tenure.chain.signs import Signs
from tenure.testing import ManualClock
from tenure.testing.simstore import SimClient, SimStore

SETTINGS = ChainSettings(backoff_ms=0)


class Home:
    """A store with the hints of members, whose clocks a test sets."""

    def __init__(self) -> None:
        self.store = SimStore()
        self.clock = ManualClock()
        self.signs = self.member("me", leads=True)

    def member(self, name: str, *, leads: bool = False) -> Signs:
        return Signs(
            retrying_store(self.store, SETTINGS),
            settings=SETTINGS,
            clock=self.clock,
            directory=name,
            say=lambda: Hint(url=f"http://{name}", leads=leads, epoch=1),
            looks=True,
        )

    def bury(self, count: int) -> None:
        """Leave the hints of dead members, whose names come before all others."""
        for number in range(count):
            hint = Hint(url="http://dead", leads=False, epoch=1, life=f"{number}")
            self.store.objects[hint_key(f"00{number:030x}")] = (msgspec.json.encode(hint), self.store.clock_ms)

    def pass_time(self, ms: int) -> None:
        self.store.advance(ms)
        self.clock.advance(ms)

    async def steps(self, *members: Signs, count: int = 1) -> None:
        """Let members write and look, as often as they do; the hints of all others grow old."""
        for _ in range(count):
            self.pass_time(SETTINGS.hint_ms)
            for each in members:
                await each.step()

    @property
    def urls(self) -> list[str]:
        return [seen.hint.url for seen in self.signs.standbys()]


@pytest.fixture
def home() -> Home:
    return Home()


async def test_a_living_standby_is_seen_behind_more_dead_ones_than_anybody_reads(home: Home):
    """Naive: a hundred hints are read, in the order of their random names."""
    home.bury(300)
    other = home.member("zz")
    await home.steps(other, home.signs, count=4)
    assert home.urls == ["http://zz"]


async def test_the_hints_of_the_dead_are_removed_and_those_of_the_living_stay(home: Home):
    home.bury(300)
    other = home.member("zz")
    count = 10 * SETTINGS.silence_ms // SETTINGS.hint_ms
    await home.steps(other, home.signs, count=count)
    assert len(home.store.objects) == 302, "not while they may come back"
    await home.steps(other, home.signs, count=2)
    assert sorted(key for key in home.store.objects if key.startswith(MEMBERS)) == [hint_key("me"), hint_key("zz")]
    assert [seen.hint.url for seen in home.signs.others()] == ["http://zz"]


async def test_one_that_was_stopped_for_long_is_seen_again_once_it_writes(home: Home):
    other = home.member("zz")
    await home.steps(other, home.signs)
    await home.steps(home.signs, count=40)
    assert home.signs.others() == []
    await home.steps(other, home.signs)
    assert home.urls == ["http://zz"]


async def test_a_hint_that_was_not_written_again_is_read_once(home: Home):
    home.bury(50)
    await home.steps(home.signs)
    before = home.store.count("get", MEMBERS)
    await home.steps(home.signs, count=10)
    assert home.store.count("get", MEMBERS) - before <= 50 + 10


async def test_hints_are_read_some_at_once(home: Home):
    home.bury(40)
    under_way, most = 0, 0
    carry_out = home.store.carry_out

    async def count(client: SimClient, kind: str, key: str, size: int, act: Callable[[], None]) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        await carry_out(client, kind, key, size, act)
        under_way -= 1

    home.store.carry_out = count  # type: ignore[method-assign]
    await home.steps(home.signs)
    assert most == 8


async def test_one_that_died_before_the_first_look_is_not_taken_for_a_living_one(home: Home):
    home.bury(1)
    home.pass_time(3 * SETTINGS.hint_ms)
    await home.steps(home.signs)
    assert home.urls == []
    assert [seen.age_ms for seen in home.signs.others()] == [4 * SETTINGS.hint_ms]
