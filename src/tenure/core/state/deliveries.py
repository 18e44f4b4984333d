"""Deliveries that ended without an ack, kept per job: for the history of a job and the reason it died of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Final, Self

import msgspec

__all__ = ["ENDED_BYTES_MAX", "ENDED_JOBS_MAX", "ENDED_PER_JOB_MAX", "Delivery", "EndedDeliveries", "weight_bytes"]

ENDED_JOBS_MAX: Final = 10_000
"""How many jobs of a queue keep their ended deliveries; the job whose last one is oldest loses them first."""
ENDED_BYTES_MAX: Final = 16 * 1024 * 1024
"""How much the ended deliveries of a queue weigh at most; one job always keeps its own."""
ENDED_PER_JOB_MAX: Final = 32
"""How many ended deliveries one job keeps, the newest."""
_DELIVERY_BYTES: Final = 256
"""What a delivery weighs besides its node and its reason."""


class Delivery(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A delivery that ended without an ack; ``end`` is expired, nack, disconnect, dead, returned or lost."""

    lease: int
    node: str
    since_ms: int
    until_ms: int
    end: str
    reason: str | None = None


class EndedDeliveries(OrderedDict[int, list[Delivery]]):
    """The ended deliveries of a queue's jobs by seq, within the limits; ``size_bytes`` is what they weigh.

    It is a dict itself because every ack asks whether there are any, and that must not take a call.
    """

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        super().__init__()
        self.size_bytes = 0

    @classmethod
    def restore(cls, rows: Sequence[tuple[int, list[Delivery]]]) -> Self:
        """Return the deliveries of a snapshot, the oldest first, cut to the limits of today."""
        restored = cls()
        restored.update(rows)
        restored.size_bytes = sum(weight_bytes(deliveries) for _, deliveries in rows)
        restored._drop_oldest()
        return restored

    def add(self, seq: int, delivery: Delivery) -> None:
        """Append a delivery to those of its job, and drop the oldest ones beyond a limit."""
        deliveries = self.get(seq)
        if deliveries is None:
            self[seq] = deliveries = [delivery]
        else:
            self.move_to_end(seq)
            deliveries.append(delivery)
        self.size_bytes += weight_bytes((delivery,))
        if len(deliveries) > ENDED_PER_JOB_MAX:
            self.size_bytes -= weight_bytes((deliveries.pop(0),))
        if len(self) > ENDED_JOBS_MAX or self.size_bytes > ENDED_BYTES_MAX:
            self._drop_oldest()

    def forget(self, seq: int) -> None:
        """Drop the deliveries of a job, if it has any."""
        deliveries = self.pop(seq, None)
        if deliveries is not None:
            self.size_bytes -= weight_bytes(deliveries)

    def last_reason(self, seq: int, *, but: Collection[str] = ()) -> str | None:
        """Return the last reason with which a delivery of this job ended, or None, but for those that ended so."""
        deliveries = self.get(seq, ())
        return next((d.reason for d in reversed(deliveries) if d.reason is not None and d.end not in but), None)

    def _drop_oldest(self) -> None:
        while len(self) > ENDED_JOBS_MAX or (self.size_bytes > ENDED_BYTES_MAX and len(self) > 1):
            _, deliveries = self.popitem(last=False)
            self.size_bytes -= weight_bytes(deliveries)


def weight_bytes(deliveries: Sequence[Delivery]) -> int:
    """Return about how much memory these deliveries take."""
    weight = _DELIVERY_BYTES * len(deliveries)
    for delivery in deliveries:
        weight += len(delivery.node)
        if delivery.reason is not None:
            weight += len(delivery.reason)
    return weight
