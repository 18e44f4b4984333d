"""The broken variants of taking over: one rule changed, the smallest bounds that show it, what it breaks."""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from tests.chain.model.takeover.rules import Bounds, Case, Rules

__all__ = ["VARIANTS", "Variant"]


class Variant(NamedTuple):
    case: Case
    breaks: str


def _variant(rules: Rules, bounds: Bounds, breaks: str) -> Variant:
    return Variant(Case(rules, bounds), breaks)


_QUICK: Final = partial(Bounds, operations=0, beats=0, grant=1, silence=1, opening=0)
_SLOW: Final = partial(Bounds, operations=0, beats=0, grant=1, silence=1, opening=1)
_EARLY: Final = partial(Bounds, operations=0, beats=0, grant=2, silence=1, opening=0)

VARIANTS: Final = {
    # Grants.
    "a grant counts from the reply": _variant(Rules(grant_from="reply"), _QUICK(fences=1), "stale"),
    "a fence gives a grant": _variant(Rules(fences_grant=True), _SLOW(members=3), "stale"),
    "a new leader does not wait for the old grant": _variant(Rules(wait_for_grant=False), _EARLY(fences=1), "stale"),
    "the wait has no margin for uneven clocks": _variant(Rules(margin=False), _QUICK(fences=1, skips=1), "stale"),
    "the last fence was my own, so nobody has a grant": _variant(Rules(wait_from="fence"), _EARLY(crashes=1), "stale"),
    "a copied directory, or one on another boot, does not wait": _variant(
        Rules(exempt_copies=True), _EARLY(members=1, fences=1, clones=1), "stale"
    ),
    "a bootstrap keeps its old times": _variant(Rules(fresh_bootstrap=False), _QUICK(beats=1, collector=True), "stale"),
    # Silence.
    "silence is counted from data links only": _variant(Rules(silence_from="data"), _SLOW(members=3), "restless"),
    "a fence does not say how long its sender needs to open": _variant(
        Rules(state_opening=False), Bounds(operations=0, fences=1, beats=0, grant=1, silence=1, opening=2), "restless"
    ),
    "a lead that was given up is taken over again behind a fence": _variant(
        Rules(released_newest=False), _SLOW(members=3, fences=1, releases=1), "restless"
    ),
    "a standby behind a mark challenges": _variant(
        Rules(look_before_fence=False), _SLOW(fences=1, renewals=1, collector=True), "void"
    ),
    # Handing over.
    "the grant runs on while the lead is given up": _variant(
        Rules(drop_grant_first=False), _QUICK(fences=1, releases=1), "stale"
    ),
    "the lead that was given up gives a grant": _variant(
        Rules(after_released="answers"), _QUICK(fences=1, releases=1), "stale"
    ),
    "the lead is given up with writes unshipped": _variant(
        Rules(release_ships_all=False), _QUICK(operations=1, fences=1, releases=1), "phantom"
    ),
    # A fenced leader that follows.
    "the tail is shipped after a foreign fence": _variant(Rules(tail_aside=False), _SLOW(operations=1), "denied"),
    "a fenced leader keeps its state": _variant(Rules(drop_state=False), _SLOW(operations=1), "phantom"),
}
