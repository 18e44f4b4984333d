"""A stop ends in time, whatever the store does."""

from __future__ import annotations

import pytest

from tenure.chain.hint import Hint
from tenure.chain.signs import Signs
from tenure.errors import Indeterminate
from tenure.testing import ManualClock
from tenure.testing.simdisk import SimDisk
from tenure.testing.simstore import Call, Fault, Hold, SimStore
from tests.chain.kit import open_log


def hanging(*kinds: str) -> tuple[SimStore, list[Hold]]:
    """Return a store whose calls of these kinds are never answered once the list holds something."""
    store, held = SimStore(), list[Hold]()

    def hook(call: Call) -> Fault | Hold | None:
        if not held or call.kind not in kinds:
            return None
        held.append(Hold(is_done=False))
        return held[-1]

    store.hook = hook
    return store, held


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["put_new", "get"])
def test_a_link_under_way_is_given_up_when_the_process_ends(kind: str):
    """After a pause a link is also read back: the store may hang at either call."""
    (store, held), clock = hanging(kind), ManualClock()
    is_over = False
    log = open_log(store, SimDisk(), clock=clock, is_over=lambda: is_over)
    for _ in log.replay():
        pass
    clock.advance(log.leadership.chain.settings.lapse_ms + 1)
    held.append(Hold(is_done=False))
    log.append([(20, 1, b"unknown")])
    is_over = True
    with pytest.raises(Indeterminate):
        log.sync()
    count = len(held)
    assert count > 1
    log.close()
    assert len(held) == count


@pytest.mark.timeout(20)
def test_a_hint_that_cannot_be_removed_does_not_hold_a_stop():
    store, held = hanging("delete")
    log = open_log(store, SimDisk())
    for _ in log.replay():
        pass
    about = {"settings": log.leadership.chain.settings, "clock": log.leadership.clock}
    signs = Signs(log.leadership.chain.store, **about, directory="a", say=lambda: Hint(url="", epoch=1), looks=False)  # type: ignore[arg-type]
    held.append(Hold(is_done=False))
    signs.stop()
    assert len(held) == 2
