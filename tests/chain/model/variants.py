"""The broken variants: one rule changed, the smallest bounds that show it, and the property that it breaks."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.chain.model.rules import Bounds, Case, Rules

__all__ = ["VARIANTS", "Variant"]


class Variant(NamedTuple):
    case: Case
    breaks: str


def _variant(rules: Rules, bounds: Bounds, breaks: str) -> Variant:
    return Variant(Case(rules, bounds), breaks)


_PAIR: Final = Bounds(members=2, operations=1, fences=1, crashes=0)
_COLLECTED: Final = Bounds(members=2, operations=2, fences=2, crashes=0, collector=True)
_STANDBYS: Final = Bounds(members=2, operations=2, fences=2, crashes=0, collector=True, standbys=True)
_CROWD: Final = Bounds(members=3, operations=2, fences=2, crashes=0, collector=True)
_ALONE: Final = Bounds(members=1, operations=2, fences=3, crashes=1, renewals=1, collector=True)
_RESTORED: Final = Bounds(members=2, operations=2, fences=1, crashes=0, collector=True, restores=1)
_CLOCKS: Final = Bounds(members=2, operations=2, fences=1, crashes=0, collector=True, restores=1, clocks_go_back=True)
_CANDIDATE: Final = Bounds(1, 2, 2, crashes=0, renewals=2, collector=True, restores=1, restored_candidates=True)
_SET_BACK: Final = Bounds(members=1, operations=2, fences=1, crashes=1, restores=1)
_FORGETFUL: Final = Bounds(members=2, operations=2, fences=2, crashes=0, forgets=1)
_SILENT: Final = Bounds(members=2, operations=3, fences=1, crashes=0, forgets=1, forgets_silently=True)

VARIANTS: Final = {
    # Creating.
    "a taken slot is taken for mine": _variant(Rules(taken="mine"), _PAIR, "lost"),
    "a taken slot is taken for another's": _variant(Rules(taken="another's"), _PAIR, "denied"),
    "409 on an empty key is taken for another's": _variant(Rules(conflict="another's"), _PAIR, "denied"),
    # Marks.
    "no look for the mark after a fence": _variant(Rules(look_after_fence=False), _COLLECTED, "diverged"),
    "readers apply a fence without a look": _variant(Rules(look_at_fences=False), _CROWD, "diverged"),
    "nothing changed is said without a look": _variant(Rules(look_before_denial=False), _CROWD, "denied"),
    "links are deleted before the mark": _variant(Rules(mark_first=False), _COLLECTED, "diverged"),
    "the fence is collected too": _variant(
        Rules(keep_fences=False, look_after_commit="never"), Bounds(2, 2, 1, crashes=0, collector=True), "lost"
    ),
    "a living epoch is freed": _variant(Rules(closed_epochs_only=False), _ALONE, "stuck"),
    # What is freed is elsewhere.
    "links of the open segment are freed": _variant(
        Rules(keep_open_segment=False), Bounds(1, 2, 1, crashes=0, renewals=1, collector=True, segment_links=2), "stuck"
    ),
    "a segment goes that no checkpoint names yet": _variant(Rules(keep_unnamed=False), _STANDBYS, "payload"),
    "a late checkpoint replaces a newer one": _variant(Rules(newest_by_place=False), _STANDBYS, "stuck"),
    "a checkpoint names a segment that is not uploaded": _variant(Rules(upload_first=False), _ALONE, "payload"),
    # A memory that goes back.
    "a restored leader does not look": _variant(Rules(look_after_commit="never"), _RESTORED, "lost"),
    "a link is kept for less than a grant": _variant(Rules(keep_longer_than_grant=False), _RESTORED, "lost"),
    "both clocks go back, and the look waits for a lapse": _variant(Rules(), _CLOCKS, "lost"),
    "before the first link, a lapse counts from the lead": _variant(Rules(lapse_since_fence=False), _CANDIDATE, "lost"),
    "my own later data is taken for a fence": _variant(Rules(own_data="denied"), _SET_BACK, "denied"),
    "a fence of my own directory is taken for another's": _variant(Rules(own_fence="denied"), _SET_BACK, "denied"),
    # The directory.
    "the tail is shipped although another led": _variant(Rules(tail="always"), Bounds(2, 1, 2, crashes=0), "denied"),
    "the tail is never shipped": _variant(Rules(tail="never"), Bounds(1, 1, 1), "disk"),
    "the nonce is written after its fence": _variant(Rules(nonce_first=False), Bounds(1, 1, 2, crashes=2), "disk"),
    "the place moves past a foreign fence before the tail is moved": _variant(
        Rules(tail_before_place=False), Bounds(2, 1, 3, crashes=1), "denied"
    ),
    "an epoch above the durable place is freed": _variant(Rules(place_before_free=False), _ALONE, "disk"),
    "the place covers bytes that were not synced": _variant(
        Rules(sync_before_place=False),
        Bounds(1, 1, 1, crashes=0, power_losses=1, renewals=1, collector=True),
        "payload",
    ),
    "links of own epochs are not written": _variant(Rules(write_own_links=False), _SET_BACK, "payload"),
    # A store that forgets.
    "the fence is not read back": _variant(Rules(read_back=False), _FORGETFUL, "diverged"),
    "the link before the fence is not read": _variant(Rules(links_before="none"), _FORGETFUL, "lost"),
    "only one link before the fence is read": _variant(Rules(links_before="one"), _FORGETFUL, "lost"),
    "the link before the fence is read before the fence is sent": _variant(
        Rules(links_before="one, too early"), Bounds(3, 1, 2, crashes=0, forgets=1), "diverged"
    ),
    "a leader reads back only its last link": _variant(Rules(link_before_commit="never"), _FORGETFUL, "lost"),
    "the first link of an epoch is not followed by a look": _variant(Rules(first_link_looks=False), _FORGETFUL, "lost"),
    "the store forgets without a lapse": _variant(Rules(), _SILENT, "lost"),
    "the store forgets twice, a late copy lands in between": _variant(Rules(), Bounds(2, 2, 2, 0, forgets=2), "lost"),
}
