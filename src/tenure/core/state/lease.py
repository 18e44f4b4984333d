"""A lease and its parts, and what is told of one that ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

__all__ = ["Delivery", "Ended", "Lease", "weight_bytes"]

_DELIVERY_BYTES: Final = 256
"""What a delivery weighs besides its node and its reason."""


class Lease(msgspec.Struct, gc=False, eq=False):
    """A part of one claim's hold on jobs: those with one deadline. ``left`` counts the jobs that it still holds.

    A claim starts as one part. An extend of only some of its jobs splits off a part of the same number, whose ``first``
    is the part that the claim started as. That one stays in ``Queue.leases`` until the last part has ended, even when
    it holds nothing itself; its ``runs`` cover the whole claim, and ``apart`` counts the jobs of all split-off parts.
    It does not refer to them: the garbage collector does not track leases, so they may not form a cycle.
    ``indexed_ms`` is the deadline under which ``Queue.leases_by_deadline`` has the part, and 0 before it does.
    """

    number: int
    node: str
    since_ms: int
    deadline_ms: int
    left: int
    runs: list[int]
    claim_id: str | None = None
    first: Lease | None = None
    apart: int = 0
    indexed_ms: int = 0


class Delivery(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A delivery that ended without an ack; ``end`` is expired, nack or disconnect."""

    lease: int
    node: str
    since_ms: int
    until_ms: int
    end: str
    reason: str | None = None


class Ended(NamedTuple):
    """A lease that ran out, for whoever follows the queue's life."""

    lease: int
    node: str
    deadline_ms: int
    runs: list[int]


def weight_bytes(deliveries: Sequence[Delivery]) -> int:
    """Return about how much memory these deliveries take."""
    weight = _DELIVERY_BYTES * len(deliveries)
    for delivery in deliveries:
        weight += len(delivery.node)
        if delivery.reason is not None:
            weight += len(delivery.reason)
    return weight
