"""The configurations of taking over that are explored whole, with the number of states that each has.

The number is part of the test: an exploration that became smaller by mistake would pass otherwise. `SHORT` is explored
in every run, `LONG` with the long suites.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from tests.chain.model.takeover.rules import Bounds, Case, Rules

__all__ = ["LONG", "SHORT", "Configuration"]


class Configuration(NamedTuple):
    case: Case
    states: int


def _whole(bounds: Bounds, states: int) -> Configuration:
    return Configuration(Case(Rules(), bounds), states)


_QUICK: Final = partial(Bounds, grant=1, silence=1, opening=0)  # a candidate opens in no time
_SLOW: Final = partial(Bounds, grant=1, silence=1, opening=1)
_EARLY: Final = partial(Bounds, grant=2, silence=1, opening=0)  # it challenges before the grant is over

SHORT: Final = {
    "silence": _whole(_SLOW(2, 1, 2, beats=1), 9_245),
    "silence shorter than a grant": _whole(_EARLY(2, 1, 2, beats=0), 3_056),
    "silence, a crash": _whole(_QUICK(2, 1, 2, beats=0, crashes=1), 16_067),
    "silence, clocks of unequal rate": _whole(_QUICK(2, 0, 1, beats=1, skips=1), 1_342),
    "silence, two standbys": _whole(_SLOW(3, 0, 2, beats=0), 10_543),
    "silence, collector": _whole(_QUICK(2, 0, 2, beats=1, collector=True), 5_703),
    "silence, collector, a leader fences itself": _whole(_SLOW(2, 0, 1, beats=1, renewals=1, collector=True), 5_834),
    "a copied directory": _whole(_EARLY(1, 1, 2, beats=0, clones=1), 3_764),
    "handover": _whole(_QUICK(2, 1, 2, beats=0, releases=1), 15_344),
    "handover, a crash": _whole(_QUICK(2, 0, 1, beats=0, crashes=1, releases=1), 5_035),
    "handover with a write, a crash": _whole(_QUICK(2, 1, 1, beats=0, crashes=1, releases=1), 15_558),
}
LONG: Final = {
    "silence, a crash, a beat": _whole(_SLOW(2, 1, 2, beats=1, crashes=1), 124_368),
    "silence shorter than a grant, a crash": _whole(_EARLY(2, 1, 2, beats=0, crashes=1), 39_930),
    "silence, two standbys, an operation": _whole(_SLOW(3, 1, 2, beats=0), 49_475),
    "silence, a crash, a burned disk, collector": _whole(
        _QUICK(2, 0, 2, beats=0, crashes=1, burns=1, collector=True), 168_017
    ),
    "two standbys, collector": _whole(_QUICK(3, 0, 2, beats=0, collector=True), 19_235),
    "a copied directory, two members": _whole(_EARLY(2, 0, 2, beats=0, clones=1), 82_177),
    "handover, a crash, two fences": _whole(_QUICK(2, 0, 2, beats=0, crashes=1, releases=1), 35_124),
    "handover with a write, a crash, two fences": _whole(_QUICK(2, 1, 2, beats=0, crashes=1, releases=1), 122_575),
    "handover, two standbys": _whole(_SLOW(3, 0, 2, beats=0, releases=1), 155_284),
    "handover there and back": _whole(_QUICK(2, 1, 2, beats=0, releases=2), 47_668),
}
