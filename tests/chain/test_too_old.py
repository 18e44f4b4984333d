"""A standby of the version before, after the features of its leader's version were turned on: it says so at once."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from unittest import mock

import pytest

from tenure.chain import link as link_format
from tenure.chain.hint import Hint
from tenure.chain.leadership import Leadership
from tenure.chain.link import Part
from tenure.chain.shipped import ShippedLog
from tenure.chain.standby import Standby
from tenure.errors import Corrupt
from tenure.log.features import FEATURES, Feature, FeatureSet
from tenure.testing.simstore import SimStore
from tests.chain.test_standby import Machine, Running, first_leader, put

NEW = Feature("gadgets", "9.2.0")
OLDER = FEATURES


def standby_of(machine: Machine, known: Sequence[Feature] = OLDER) -> Standby:
    return Standby(machine.member(), machine.follower, random=Random(1), known=known)


def turn_on(log: ShippedLog) -> None:
    """Do what the version after this one does when its upgrade is finalized."""
    log.features = FeatureSet(log.features.on, known=(*FEATURES, NEW))
    log.turn_on_features()
    log.sync()


def test_a_standby_that_does_not_know_a_feature_says_so_and_does_not_take_over():
    """Naive: it stores what comes without a look, is counted as a standby, and ends when it should take over."""
    store = SimStore()
    _, log = first_leader(store)
    put(log, b"a")
    machine = Machine(store, "bb")
    standby = standby_of(machine)
    running = Running(standby)
    running.wait_for(log)
    assert standby.trouble == ""
    turn_on(log)
    running.wait_until(lambda: bool(standby.trouble))
    assert "gadgets" in standby.trouble
    put(log, b"b")
    running.wait_for(log)
    machine.clock.advance(60_000)
    running.looks(20)
    assert not running.is_done, "nobody who cannot read the log may lead it"
    running.stop()


def test_a_standby_that_knows_the_feature_goes_on():
    store = SimStore()
    _, log = first_leader(store)
    put(log, b"a")
    machine = Machine(store, "bb")
    standby = standby_of(machine, (*FEATURES, NEW))
    running = Running(standby)
    running.wait_for(log)
    turn_on(log)
    put(log, b"b")
    running.wait_for(log)
    assert standby.trouble == ""
    running.stop()


def test_one_that_starts_then_ends_with_the_reason():
    store = SimStore()
    _, log = first_leader(store)
    turn_on(log)
    put(log, b"a")
    running = Running(standby_of(Machine(store, "bb")))
    with pytest.raises(Corrupt) as caught:
        running.led()
    assert caught.value.code == "unknown_feature"


def test_a_link_of_a_newer_format_is_no_damage_to_a_standby():
    store = SimStore()
    _, log = first_leader(store)
    put(log, b"a")
    standby = standby_of(Machine(store, "bb"))
    running = Running(standby)
    running.wait_for(log)
    ship = Leadership.ship

    async def ship_in_parts(self: Leadership, *given: object, **options: object) -> None:
        await ship(self, *given, **options | {"parts": [Part(1, bytes(32))]})  # type: ignore[arg-type]

    with mock.patch.object(Leadership, "ship", ship_in_parts):
        put(log, b"b")
    with mock.patch.object(link_format, "FORMAT", 1):
        running.wait_until(lambda: bool(standby.trouble))
        assert "format" in standby.trouble
        running.stop()


@pytest.mark.parametrize(
    ("hint", "missing"),
    [
        (Hint(url="", epoch=1, version="0.1.0"), ["gadgets"]),
        (Hint(url="", epoch=1, version="9.2.0"), []),
        (Hint(url="", epoch=1, version="10.0"), []),
        (Hint(url="", epoch=1, version="unknown"), ["gadgets"]),
        (Hint(url="", epoch=1, version="9.9.9", reads=()), ["gadgets"]),
        (Hint(url="", epoch=1, version="0.1.0", reads=("returns", "gadgets")), []),
    ],
)
def test_a_hint_says_what_its_member_cannot_read(hint: Hint, missing: list[str]):
    """One of the version before does not say: then its version does."""
    assert hint.cannot_read([("gadgets", "9.2.0")]) == missing
