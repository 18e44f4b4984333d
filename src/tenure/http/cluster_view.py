"""What one server knows of the servers that share its home: its own part, and the signs of life of the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tenure import __version__
from tenure.chain.hint import Hint
from tenure.chain.shipped import ShippedLog
from tenure.chain.signs import Signs
from tenure.chain.standby import Standby
from tenure.clock import Clock
from tenure.contract.replies.cluster import ClusterInfo, MemberInfo
from tenure.http.api.chain_families import checkpoints_family, leader_families, shared_families
from tenure.http.api.prometheus import Family
from tenure.log.features import FEATURES

__all__ = ["ClusterView"]

_CAUGHT_UP_MS: Final = 5_000


class ClusterView:
    """The view of the server at one URL. Whoever lives its life sets what changes; nothing here asks anybody."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        #: Set while this server leads and serves.
        self.log: ShippedLog | None = None
        #: Set while it follows.
        self.standby: Standby | None = None
        #: Who leads, as far as it is known, while neither is set.
        self.next_leader = ""
        self.signs: Signs | None = None
        self.takeovers = 0
        self.fenced = 0
        #: Bytes that were moved aside by those who followed here before.
        self.diverged_bytes = 0
        #: Checkpoints that were brought to the home in earlier parts of this server's life.
        self.checkpoints = 0

    def info(self) -> ClusterInfo:
        """Return what is known now."""
        if self.log is not None:
            return self._leader_info(self.log)
        if self.standby is not None and (lag_ms := self.standby.lag_ms) is not None:
            return self._standby_info(self.standby, lag_ms)
        leader, members = self.next_leader, self._members()
        return ClusterInfo(role="standby", url=self._url, leader=leader, is_caught_up=False, members=members)

    def _leader_info(self, log: ShippedLog) -> ClusterInfo:
        place, left_ms = log.leadership.place, log.granted_until_ms - self._clock.boot_ms()
        return ClusterInfo(
            role="leader",
            url=self._url,
            leader=self._url,
            epoch=place.epoch,
            number=place.number,
            grant_left_ms=int(max(0, left_ms)),
            unshipped_bytes=log.unshipped_bytes,
            diverged_bytes=self.diverged_bytes,
            members=self._members(),
        )

    def _standby_info(self, standby: Standby, lag_ms: int) -> ClusterInfo:
        place, leader = standby.notes.place, standby.leader_url
        return ClusterInfo(
            role="standby",
            url=self._url,
            leader="" if leader == self._url else leader,
            epoch=place.epoch,
            number=place.number,
            is_caught_up=lag_ms <= _CAUGHT_UP_MS and not standby.trouble,
            trouble=standby.trouble,
            follow_lag_links=standby.lag_links,
            follow_lag_ms=lag_ms,
            diverged_bytes=self.diverged_bytes + standby.diverged_bytes,
            members=self._members(),
        )

    def _members(self) -> list[MemberInfo]:
        others = self.signs.others() if self.signs is not None else []
        return [_member(self.hint(), 0), *(_member(seen.hint, seen.age_ms) for seen in others)]

    def hint(self) -> Hint:
        """Return what this server says of itself to the others."""
        epoch, number = 0, 0
        if self.log is not None:
            epoch, number = self.log.leadership.place[:2]
        elif self.standby is not None and self.standby.lag_ms is not None:
            epoch, number = self.standby.notes.place[:2]
        return Hint(
            url=self._url,
            leads=self.log is not None,
            epoch=epoch,
            number=number,
            version=__version__,
            reads=tuple(feature.name for feature in FEATURES),
            trouble="" if self.standby is None else self.standby.trouble,
        )

    def families(self, requests: Mapping[str, int]) -> Iterator[Family]:
        """Return the metrics of the home; ``requests`` are those to its store."""
        yield from shared_families(self.info(), takeovers=self.takeovers, fenced=self.fenced, requests=requests)
        now = self.log or self.standby
        yield checkpoints_family(self.checkpoints + (0 if now is None else now.checkpoints))
        if self.log is not None:
            yield from leader_families(self.log)


def _member(hint: Hint, age_ms: int) -> MemberInfo:
    return MemberInfo(
        url=hint.url,
        role="leader" if hint.leads else "standby",
        epoch=hint.epoch,
        number=hint.number,
        version=hint.version,
        age_ms=age_ms,
        trouble=hint.trouble,
    )
