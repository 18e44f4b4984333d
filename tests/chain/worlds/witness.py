"""What callers were answered and leaders held, and whether all of it fits into one history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tenure.chain.link import Link
from tests.lives.anomaly import Anomaly

__all__ = ["Lead", "Witness", "fences"]


class Lead(NamedTuple):
    """A leadership, and the operations that its log held once its tail was shipped."""

    epoch: int
    name: str
    ops: Sequence[int]


class Witness:
    """Everything that was said, in one place."""

    def __init__(self) -> None:
        self._count = 0
        #: The epoch in which each operation was committed, as its caller was told.
        self.acked: dict[int, int] = {}
        #: Operations of which a caller was told that nothing happened.
        self.denied: set[int] = set()
        self.leads: list[Lead] = []

    def new_ops(self, count: int) -> list[int]:
        """Return operations that nobody has sent before."""
        self._count += count
        return list(range(self._count - count, self._count))

    def ack(self, ops: Iterable[int], epoch: int) -> None:
        for op in ops:
            self.acked.setdefault(op, epoch)

    def deny(self, ops: Iterable[int]) -> None:
        self.denied.update(ops)

    def lead(self, lead: Lead) -> None:
        """Note a new leader, and compare it with those before at once: a divergence may end in anything later."""
        self.leads.append(lead)
        longest = max(self.leads, key=lambda each: len(each.ops))
        _check_same(lead, longest)
        self.check_lead(lead)

    def check_lead(self, lead: Lead) -> None:
        """Check that a leader holds what was acknowledged before its epoch, and nothing that was denied."""
        ops = set(lead.ops)
        missing = [op for op, epoch in self.acked.items() if epoch < lead.epoch and op not in ops]
        if missing:
            about = f"operation {missing[0]} of epoch {self.acked[missing[0]]} was acknowledged"
            raise Anomaly("lost", f"{about}, and the leader of epoch {lead.epoch} ({lead.name}) does not have it")
        if wrong := sorted(self.denied & ops):
            about = f"of operation {wrong[0]} it was said that nothing happened"
            raise Anomaly("false_denial", f"{about}, and the leader of epoch {lead.epoch} ({lead.name}) has it")
        if len(ops) < len(lead.ops):
            raise Anomaly("twice", f"the leader of epoch {lead.epoch} ({lead.name}) has an operation twice")

    def check_end(self, last: Lead) -> None:
        """Check everything that was ever said against the history that a new reader finds."""
        for lead in self.leads:
            _check_same(lead, last)
        for lead in (*self.leads, last):
            self.check_lead(lead)


def _check_same(lead: Lead, other: Lead) -> None:
    """Check that of two logs one is the beginning of the other."""
    count = min(len(lead.ops), len(other.ops))
    if list(lead.ops[:count]) != list(other.ops[:count]):
        at = next(at for at in range(count) if lead.ops[at] != other.ops[at])
        raise Anomaly(
            "divergent",
            f"at {at} the leader of epoch {lead.epoch} ({lead.name}) has operation {lead.ops[at]}, "
            f"that of epoch {other.epoch} ({other.name}) has {other.ops[at]}",
        )


def fences(objects: Mapping[str, tuple[bytes, int]]) -> dict[int, str]:
    """Return who began each epoch, as the store has it: the last fence in a directory is the one that counts."""
    found: dict[int, str] = {}
    for key in sorted(key for key in objects if key.startswith("chain/")):
        link = Link.unpack(objects[key][0], key)
        if link.is_fence:
            found[link.epoch] = link.url
    return found
