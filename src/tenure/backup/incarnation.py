"""What makes a restored log one of its own, beside an original that may go on.

A backup is restored while the original, or another copy, may still run. Three numbers must not mean two things then:

- **The log id** is new, so no position, checkpoint, salted checksum, export or chain of the original fits the copy.
- **Lease numbers** are ``epoch << 40 | n`` in 63 bits, so an epoch has 23. The original counts its epochs up by one per
  opening. The copy draws its epoch at random from all 23 bits and not within 65,536 of the original's: the original
  would have to be opened 65,536 times to reach it, and two copies that are opened 100 times each share an epoch with a
  probability of 1 in 40,000. Where leases are kept the epoch is drawn from those above the original's only, because
  lease numbers ascend within a queue.
- **Seqs** after the end of the backup belong to the records that the original appended since. The copy leaves out a run
  of them in each topic: twice as many as the topic ever had, at least 2²⁴ (with more than 1,024 topics a share of 2³⁴,
  because a run takes about a byte for every 500 seqs), and at random up to twice that. A reader that comes with a
  cursor from among them has read records that the copy never had: it is told ``recreated``, and goes on with the first
  record after them. Neither a job nor a cursor of the one log is taken for one of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tenure.core.events import Released
from tenure.core.fold import fold
from tenure.core.state.ranges import count, to_runs
from tenure.core.state.state import State
from tenure.errors import Conflict

__all__ = ["CAUSE", "choose_epoch", "leave_out_seqs", "release_leases"]

CAUSE: Final = "restore"
"""How a delivery ended that was in flight when the backup was taken."""
_EPOCHS: Final = 1 << 23
_APART: Final = 1 << 16
_LEFT_OUT_TOGETHER: Final = 1 << 34
_TOPICS_MIN: Final = 1 << 10

RandomBelow = Callable[[int], int]


def choose_epoch(epoch: int, *, keep_leases: bool, random_below: RandomBelow) -> int:
    """Return the epoch that the restored log begins in, far from that of the backup.

    Raises Conflict where leases are to be kept and no epoch above it is left.
    """
    below = 0 if keep_leases else max(0, epoch - 2 * _APART)
    above = max(0, _EPOCHS - epoch - 2 * _APART)
    if not below + above:
        raise Conflict("no lease number above those of the backup is left: restore it without --keep-leases")
    drawn = random_below(below + above)
    return _APART + drawn if drawn < below else epoch + _APART + drawn - below


def release_leases(state: State) -> int:
    """End every lease at the time of the backup; its jobs are the next in line, with their delivery counts.

    Return how many jobs that were.
    """
    released, now_ms = 0, state.log_ms
    for topic in state.by_id.values():
        state.pass_time(topic, now_ms)
        if topic.queue is None or not topic.queue.in_flight:
            continue
        runs = to_runs(topic.queue.in_flight)
        fold(state, Released(now_ms, topic.id, runs, "", now_ms, reason="restored from a backup", cause=CAUSE))
        released += count(runs)
    return released


def leave_out_seqs(state: State, *, random_below: RandomBelow) -> None:
    """Leave out, in each topic, the seqs that the original may have given to other records.

    Routers that had passed on everything do not go through them one by one.
    """
    share = _LEFT_OUT_TOGETHER // max(len(state.by_id), _TOPICS_MIN)
    for topic in state.by_id.values():
        before, least = topic.head_seq, max(share, 2 * topic.head_seq)
        topic.leave_out(least + random_below(least))
        for router in state.routers_from.get(topic.name, ()):
            if router.cursor >= before:
                router.cursor = topic.head_seq
