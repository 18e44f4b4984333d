"""Broken variants of members: each takes one rule out of the product, and the lives must notice."""

from __future__ import annotations

from typing import Any, Final
from unittest import mock

from tenure.broker.durability.committer import Committer
from tenure.broker.warm_state import Warm, WarmState
from tenure.chain.leadership import Leadership, Lost
from tenure.chain.notes import Notes
from tenure.chain.place import Place
from tenure.chain.silence import Silence
from tenure.chain.standby import Standby
from tenure.errors import NotLeader
from tenure.log.opening import clear_leftovers
from tenure.objects.retrying import RetryingStore
from tests.chain.worlds.variants import Variant, unknown_is_mine

__all__ = ["VARIANTS"]

_FOLDS_LATE: Final = 40
_advance, _begin_anew, _take = WarmState.advance, WarmState.begin_anew, WarmState.take


def _advance_late(self: Any, segment: int, offset: int) -> None:
    """Fold what was read some looks ago."""
    self.ends.append((segment, offset))
    if len(self.ends) > _FOLDS_LATE:
        _advance(self, *self.ends.pop(0))


def _begin_late(self: Any) -> None:
    _begin_anew(self)
    self.ends = []


def _take_unfolded(self: Any, **times: int) -> Warm | None:
    """Hand over a state for the end of the log that lacks what was not folded yet."""
    for end in self.ends[:1]:
        _advance(self, *end)
    with mock.patch("tenure.broker.warm_state.fold"):
        for end in self.ends[1:]:
            _advance(self, *end)
    return _take(self, **times)


def _take_without_time(self: WarmState, **times: int) -> Warm | None:
    """Go on by the wall clock of the new leader's machine, and not from the time that the links carry."""
    return _take(self, **times | {"log_ms": 0})


def _wait_for_beats(self: Silence, *, is_released: bool) -> float:
    """Take over after two missed beats, whatever the leader may still answer."""
    return 0 if is_released else 2 * self._settings.beat_ms


def _wait_for_own_grant(self: Silence, *, is_released: bool) -> float:
    """Take over when a grant of this member's own setting would be over."""
    last = self.last
    self.last = None if last is None or last.is_released else last._replace(grant_ms=0)
    try:
        return _wait_ms(self, is_released=is_released)
    finally:
        self.last = last


_wait_ms = Silence._wait_ms


def _drop_early(self: WarmState) -> None:
    """Drop all segments but the last one."""
    if self._heads and len(self._heads) > 1:
        clear_leftovers(self._disk, self._heads[-1].number - 1)
        self._heads = self._heads[-1:]


async def _deny_overtaken(self: Leadership, place: Place) -> Lost | None:
    lost = await _check_behind(self, place)
    return None if lost is None else NotLeader("another process has taken over", leader="")


_check_behind = Leadership._check_behind


VARIANTS: Final[dict[str, Variant]] = {
    "a grant never ends": Variant(((Committer, "has_grant", lambda self: True),), ("shadow",)),
    "a link is answered before it is committed": Variant(
        ((RetryingStore, "create_until_known", unknown_is_mine),), ("lossy", "late")
    ),
    "a standby does not wait for the grant": Variant(((Silence, "_wait_ms", _wait_for_beats),), ()),
    "a standby waits for a grant of its own": Variant(
        ((Silence, "_wait_ms", _wait_for_own_grant),), ("mixed", "shadow")
    ),
    "a restart leads at once whoever had the grant": Variant(
        ((Standby, "_may_lead_at_once", lambda self: self._is_first),), ("restart",)
    ),
    "a standby leads before it has folded all": Variant(
        (
            (WarmState, "advance", _advance_late),
            (WarmState, "begin_anew", _begin_late),
            (WarmState, "take", _take_unfolded),
        ),
        (),
    ),
    "what was never shipped stays in the copy": Variant(((Notes, "owns", lambda self, nonce: True),), ("orphan",)),
    "a takeover does not go on from the log's time": Variant(((WarmState, "take", _take_without_time),), ("clock",)),
    "a standby drops segments that are needed": Variant(((WarmState, "drop_segments", _drop_early),), ("collect",)),
    "what was overtaken did not happen": Variant(((Leadership, "_check_behind", _deny_overtaken),), ("reply",)),
}
