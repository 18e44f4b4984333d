"""The configurations that are explored whole, with the number of states that each has.

The number is part of the test: an exploration that became smaller by mistake would pass otherwise. `SHORT` is explored
in every run, `LONG` with the long suites.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.chain.model.rules import Bounds, Case, Rules

__all__ = ["LONG", "SHORT", "Configuration"]


class Configuration(NamedTuple):
    case: Case
    states: int


def _whole(bounds: Bounds, states: int, *, rules: Rules | None = None) -> Configuration:
    return Configuration(Case(rules or Rules(), bounds), states)


_EVERY_LOOK: Final = Rules(look_after_commit="always", link_before_commit="always")

SHORT: Final = {
    "three members": _whole(Bounds(3, 2, 2, crashes=0), 2_288),
    "two members, a crash": _whole(Bounds(2, 2, 3, crashes=1), 7_760),
    "two members, a power loss, a burned disk": _whole(Bounds(2, 2, 1, crashes=0, power_losses=1, burns=1), 6_644),
    "one member, two crashes, fences itself": _whole(Bounds(1, 3, 3, crashes=2, renewals=1), 10_557),
    "collector": _whole(Bounds(2, 2, 2, crashes=0, collector=True), 2_479),
    "collector, no look after a commit, no machine set back": _whole(
        Bounds(2, 2, 2, crashes=0, collector=True), 1_931, rules=Rules(look_after_commit="never")
    ),
    "collector, segments of two links": _whole(Bounds(2, 3, 1, crashes=0, collector=True, segment_links=2), 4_091),
    "standbys make checkpoints": _whole(Bounds(2, 2, 2, crashes=0, collector=True, standbys=True), 13_104),
    "standbys make checkpoints, segments of two links": _whole(
        Bounds(2, 3, 1, crashes=0, collector=True, standbys=True, segment_links=2), 21_356
    ),
    "standbys make checkpoints, three members": _whole(
        Bounds(3, 1, 2, crashes=0, collector=True, standbys=True), 12_182
    ),
    "machine set back": _whole(Bounds(2, 2, 1, crashes=0, collector=True, restores=1), 12_644),
    "machine set back with both clocks, a look at every commit": _whole(
        Bounds(2, 2, 1, crashes=0, collector=True, restores=1, clocks_go_back=True), 13_116, rules=_EVERY_LOOK
    ),
    "machine set back, one member": _whole(Bounds(1, 2, 2, crashes=1, restores=1, renewals=1), 12_586),
    "machine cloned": _whole(Bounds(1, 2, 2, crashes=1, clones=1), 3_425),
    "machine cloned, collector": _whole(Bounds(2, 2, 1, crashes=0, collector=True, clones=1), 17_727),
    "store forgets data": _whole(Bounds(2, 2, 1, crashes=0, forgets=1), 6_570),
    "store forgets fences": _whole(Bounds(2, 1, 2, crashes=0, forgets=1), 3_222),
    "store forgets without a lapse, a look at every commit": _whole(
        Bounds(2, 2, 2, crashes=0, forgets=1, forgets_silently=True), 21_760, rules=_EVERY_LOOK
    ),
}
LONG: Final = {
    "standbys make checkpoints, machine set back": _whole(
        Bounds(2, 2, 1, crashes=0, collector=True, standbys=True, restores=1), 55_992
    ),
    "collector, a crash, a burned disk": _whole(Bounds(2, 1, 2, crashes=1, burns=1, collector=True), 29_652),
    "three members, three fences, a crash": _whole(Bounds(3, 2, 3, crashes=1), 99_484),
    "collector, three members": _whole(Bounds(3, 2, 2, crashes=0, collector=True), 24_477),
    "two members, a crash, a power loss, a burned disk": _whole(
        Bounds(2, 2, 2, crashes=1, power_losses=1, burns=1), 156_832
    ),
    "collector, a crash, a burned disk, two operations": _whole(
        Bounds(2, 2, 2, crashes=1, burns=1, collector=True), 214_823
    ),
    "collector, one member that fences itself": _whole(Bounds(1, 3, 3, crashes=1, renewals=2, collector=True), 76_217),
    "collector, one member, segments of two links, a burned disk": _whole(
        Bounds(1, 3, 3, crashes=0, burns=1, renewals=2, collector=True, segment_links=2), 41_770
    ),
    "machine set back twice": _whole(Bounds(2, 2, 1, crashes=0, collector=True, restores=2), 26_405),
    "machine set back, a leader fences itself": _whole(
        Bounds(2, 2, 2, crashes=0, renewals=1, collector=True, restores=1), 257_795
    ),
    "machine set back with both clocks, a leader fences itself, a look at every commit": _whole(
        Bounds(2, 2, 2, crashes=0, renewals=1, collector=True, restores=1, clocks_go_back=True),
        266_804,
        rules=_EVERY_LOOK,
    ),
    "candidate set back, two members": _whole(
        Bounds(2, 2, 2, crashes=0, collector=True, restores=1, restored_candidates=True), 53_463
    ),
    "candidate set back, one member, a crash": _whole(
        Bounds(1, 2, 2, crashes=1, renewals=1, collector=True, restores=1, restored_candidates=True), 104_701
    ),
    "store forgets, three members": _whole(Bounds(3, 2, 2, crashes=0, forgets=1), 372_521),
    "store forgets without a lapse, three operations, a look at every commit": _whole(
        Bounds(2, 3, 1, crashes=0, forgets=1, forgets_silently=True), 25_455, rules=_EVERY_LOOK
    ),
}
