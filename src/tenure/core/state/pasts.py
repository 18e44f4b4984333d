"""What a delivery count does not say of a job: deliveries that were no tries, and how often its worker was lost.

Only jobs that were returned or lost have an entry, of about 20 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pyroaring import BitMap64

from tenure.core.state.seq_times import SeqTimes

__all__ = ["LOST_MAX", "NOTHING", "Past", "Pasts"]

LOST_MAX: Final = 255
"""How many losses are counted of a job; there may be more."""
_SPARED_MAX: Final = (1 << 40) - 1


class Past(NamedTuple):
    """The past of one job: ``spared`` deliveries were no tries; ``lost`` counts the losses of its worker since the
    last verdict, ``begun`` those of them while it ran alone, each of which was a try.
    """

    spared: int = 0
    lost: int = 0
    begun: int = 0


NOTHING: Final = Past()


class Pasts:
    """The pasts of a queue's jobs by seq. ``jobs`` are those that have one; it is asked on every ack, so not a call."""

    __slots__ = ("_packed", "jobs")

    def __init__(self) -> None:
        self.jobs = BitMap64()
        self._packed = SeqTimes()

    def __len__(self) -> int:
        return len(self.jobs)

    def get(self, seq: int) -> Past:
        """Return the past of a job; that of most is `NOTHING`."""
        return _unpack(self._packed.get(seq)) if seq in self.jobs else NOTHING

    def put(self, seq: int, past: Past) -> None:
        """Set the past of a job, within the bounds of its counts."""
        self.forget(seq)
        packed = min(past.spared, _SPARED_MAX) << 16 | min(past.lost, LOST_MAX) << 8 | min(past.begun, LOST_MAX)
        if packed:
            self.jobs.add(seq)
            self._packed.put(seq, packed)

    def forget(self, seq: int) -> None:
        """Drop the past of a job, if it has one."""
        if seq in self.jobs:
            self.jobs.remove(seq)
            self._packed.pop(seq)

    def is_suspect(self, seq: int) -> bool:
        """Return whether the worker of a job was lost since the last verdict on it."""
        return bool(self.jobs) and self.get(seq).lost > 0

    def __iter__(self) -> Iterator[int]:
        """Return the seqs of the jobs that have a past, ascending."""
        return iter(self.jobs)

    def dump(self) -> list[tuple[int, int]]:
        """Return each job with its past, packed, ascending by seq."""
        return [(seq, self._packed.get(seq)) for seq in self.jobs]

    def restore(self, rows: Iterable[tuple[int, int]]) -> None:
        """Set the pasts that `dump` returned."""
        for seq, packed in rows:
            self.put(seq, _unpack(packed))


def _unpack(packed: int) -> Past:
    return Past(packed >> 16, packed >> 8 & 255, packed & 255)
