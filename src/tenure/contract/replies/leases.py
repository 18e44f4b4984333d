"""Replies to acks, nacks, extends and redrives, and to a look at the live leases of a queue.

An ack names its count ``acked`` on the wire and a nack ``nacked``; the client decodes either into `Settled`.
"""

from __future__ import annotations

import msgspec

__all__ = ["BegunJob", "EndedNode", "Extended", "HelloReply", "LeasePage", "LeaseRow", "Redriven", "Settled"]


class Settled(msgspec.Struct, frozen=True, gc=False):
    """How many jobs an ack or a nack settled, and which seqs were not the caller's.

    ``repeated`` says that an earlier copy of the call may have arrived: then a skipped seq may be its doing. Only a
    client sets it.
    """

    topic: str
    count: int
    skipped: list[int]
    ready: int = 0
    in_flight: int = 0
    repeated: bool = False


class BegunJob(msgspec.Struct, frozen=True):
    """A suspect that its worker may run now."""

    topic: str
    seq: int


class EndedNode(msgspec.Struct, frozen=True):
    """How many jobs of a process that has ended were lost on a topic, and how many were given back."""

    topic: str
    lost: int
    returned: int


class HelloReply(msgspec.Struct, frozen=True):
    """The answer to a worker's hello: whether the log keeps tries apart from deliveries (its feature ``returns`` is
    on), and how many suspects wait in each of its queues that has some.
    """

    returns: bool = False
    suspects: dict[str, int] = {}


class Extended(msgspec.Struct, frozen=True):
    """The new deadlines by seq, and the seqs that were not the caller's; ``repeated`` as in `Settled`."""

    topic: str
    deadlines: dict[int, int]
    skipped: list[int] = []
    repeated: bool = False


class Redriven(msgspec.Struct, frozen=True):
    """How many dead letters went back to work, and where to: ``destinations`` counts those of each topic.

    A dry run has the seqs and destinations of what would go, and has redriven 0.
    """

    topic: str
    redriven: int
    to: str = ""
    seqs: list[int] = []
    destinations: dict[str, int] = {}


class LeaseRow(msgspec.Struct, frozen=True):
    """A live lease: who holds which jobs, since when and until when (wall ms)."""

    lease_id: str
    node: str
    since: int
    deadline: int
    seqs: list[int]


class LeasePage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Live leases, oldest first."""

    topic: str
    leases: list[LeaseRow]
    next_cursor: str | None = None
