"""`RedisBackend`: a topic of timers in Redis as the backend of a task."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Unpack

from tenure.client.batching.acker import Acker
from tenure.contract.options import LeaseOptions
from tenure.contract.replies import Extended, Settled
from tenure.errors import Invalid
from tenure.timers import model
from tenure.timers.model import Held
from tenure.timers.timers import Timers
from tenure.worker.backends.redis_source import TimerSource, held_timer, token_and_id
from tenure.worker.options import TaskOptions
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.source import Feed

__all__ = ["RedisBackend"]

_NO_LIMIT: Final = 2**31


class RedisBackend:
    """One topic of timers, held as ``node``.

    A timer that was replaced while its handler runs is not lost: the handler continues, and its verdict changes
    nothing. Redis keeps no suspects, and counts every delivery as a try.
    """

    isolates = False

    def __init__(self, timers: Timers, options: TaskOptions, *, link: Link, node: str) -> None:
        self.link = link
        self._timers = timers
        self._options = options
        self._topic = options.queue
        self._node = node
        self._deliveries_max = options.max_deliveries or _NO_LIMIT

    async def declare(self) -> None:
        """Check the lease; a topic of timers is not created. Raises Invalid for a lease that no claim could have."""
        most = self._timers.settings.lease_ttl_ms_max
        if self._options.lease_ms > most:
            raise Invalid(f"the lease of timers is at most {most} ms; {self._topic!r} says more", field="lease")

    def source(self, feed: Feed) -> TimerSource:
        return TimerSource(
            self._timers,
            self._options,
            feed=feed,
            link=self.link,
            node=self._node,
            deliveries_max=self._deliveries_max,
        )

    async def take(self, count_max: int, *, lease_ms: int) -> list[HeldJob]:
        lease_ms = min(lease_ms, self._timers.settings.lease_ttl_ms_max)
        found = await self._timers.claim(
            self._topic,
            max_count=count_max,
            node=self._node,
            lease_ttl_ms=lease_ms,
            max_deliveries=self._deliveries_max,
        )
        return [held_timer(timer, self._node, lease_ms=lease_ms) for timer in found]

    async def extend(self, jobs: Sequence[HeldJob], *, lease_ms: int) -> Collection[HeldJob]:
        answer = await self._timers.extend(
            self._topic, [_held(job.seq, job.lease_id) for job in jobs], lease_ttl_ms=lease_ms
        )
        lost = set(answer.lost)
        return [job for job in jobs if job.timer_id in lost] if lost else ()

    async def begin(self, job: HeldJob) -> None:
        """Do nothing: no timer is a suspect."""

    def acker(self, *, batch_max: int, pending_max: int, requests_max: int) -> Acker:
        return Acker(
            _Verdicts(self._timers, self._options, self._deliveries_max),
            self._topic,
            batch_seqs_max=batch_max,
            pending_max=pending_max,
            requests_max=requests_max,
        )

    async def failures(self, job: HeldJob) -> int:
        return job.failures + 1


class _Verdicts:
    """The acks, nacks and extends of timers, as an `Acker` sends them: by seq, which is the version, and lease id."""

    def __init__(self, timers: Timers, options: TaskOptions, deliveries_max: int) -> None:
        self._timers = timers
        self._options = options
        self._deliveries_max = deliveries_max

    async def ack(
        self, topic: str, seqs: Sequence[int], *, node: str | None = None, **leases: Unpack[LeaseOptions]
    ) -> Settled:
        timers = _all_held(seqs, **leases)
        return _settled(topic, timers, await self._timers.commit(topic, timers))

    async def nack(
        self,
        topic: str,
        seqs: Sequence[int],
        *,
        node: str | None = None,
        delay_ms: int | None = None,
        reason: str | None = None,
        dead: bool = False,
        **leases: Unpack[LeaseOptions],
    ) -> Settled:
        timers = _all_held(seqs, **leases)
        if dead:
            return _settled(topic, timers, await self._timers.reject(topic, timers, reason=reason or ""))
        backoff = self._options.backoff
        delays = [backoff.delay_ms(1, seq=seq) if delay_ms is None else delay_ms for seq in seqs]
        settled = await self._timers.nack(
            topic, timers, delay_ms=delays, reason=reason or "", max_deliveries=self._deliveries_max
        )
        return _settled(topic, timers, settled)

    async def return_jobs(
        self,
        topic: str,
        seqs: Sequence[int],
        *,
        node: str | None = None,
        delay_ms: int = 0,
        reason: str | None = None,
        **leases: Unpack[LeaseOptions],
    ) -> Settled:
        """Give timers back as a nack without a reason does: Redis tells no tries from deliveries."""
        return await self.nack(topic, seqs, node=node, delay_ms=delay_ms, **leases)

    async def extend(
        self,
        topic: str,
        seqs: Sequence[int],
        *,
        node: str | None = None,
        lease_ms: int | None = None,
        **leases: Unpack[LeaseOptions],
    ) -> Extended:
        timers = _all_held(seqs, **leases)
        answer = await self._timers.extend(topic, timers, lease_ttl_ms=lease_ms)
        skipped = _seqs(timers, answer.lost)
        return Extended(topic, {seq: answer.deadline_ms for seq in seqs if seq not in skipped}, skipped)


def _held(seq: int, lease_id: str) -> Held:
    token, timer_id = token_and_id(lease_id)
    return Held(timer_id, token, seq)


def _all_held(seqs: Sequence[int], **leases: Unpack[LeaseOptions]) -> list[Held]:
    """Return each seq with its lease; one lease for several seqs is impossible, because a lease names its timer."""
    ids = leases.get("lease_ids") or [leases.get("lease_id") or ""] * len(seqs)
    return [_held(seq, lease) for seq, lease in zip(seqs, ids, strict=True)]


def _settled(topic: str, timers: Sequence[Held], settled: model.Settled) -> Settled:
    return Settled(topic, settled.count, _seqs(timers, settled.lost), repeated=settled.repeated)


def _seqs(timers: Sequence[Held], ids: Sequence[str]) -> list[int]:
    wanted = set(ids)
    return [timer.version for timer in timers if timer.timer_id in wanted] if wanted else []
