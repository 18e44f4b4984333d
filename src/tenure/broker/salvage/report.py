"""The report of a salvage: what was kept, and exactly what was not."""

from __future__ import annotations

import msgspec

from tenure.log.damage.defects import Report

__all__ = ["GIVEN_UP", "KeptRouter", "KeptTopic", "Rebuilt"]

GIVEN_UP = (
    "leases, delivery counts and their stories: every job that is not parked can be claimed at once, as if for the "
    "first time",
    "delays: jobs that were to wait do not",
    "idempotency keys, unique keys and client marks: a produce that is sent again is taken for a new one",
    "the places of routers: each goes on behind the newest record of its source",
)
"""What no salvage keeps, for any damage."""


class KeptTopic(msgspec.Struct, frozen=True, kw_only=True):
    """One topic of the new directory. ``lost`` are (first, last) seqs of which nothing is left: no record, and no event
    that it was acked or removed. ``declared`` is false where name and config were lost too, and had to be made up.
    """

    id: int
    topic: str
    type: str
    declared: bool
    records: int
    bytes: int
    head_seq: int
    lost: list[tuple[int, int]]


class KeptRouter(msgspec.Struct, frozen=True, kw_only=True):
    """One router of the new directory; ``passed_over`` are (first, last) seqs that it has not copied, as far as is
    known, and will not copy.
    """

    router: str
    source: str
    dest: str
    passed_over: list[tuple[int, int]]


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a salvage: what it kept and what it gave up."""

    found: Report
    topics: list[KeptTopic]
    routers: list[KeptRouter]
    given_up: tuple[str, ...] = GIVEN_UP

    @property
    def complete(self) -> bool:
        """Whether nothing but what is always given up is missing."""
        return not self.found.problems and not any(topic.lost for topic in self.topics)
