"""`AckBatch`: the jobs that one request acks, nacks or extends, and the callers that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, assert_never

from tenure.client.batching.batcher import own
from tenure.contract.commands import Ack, Extend, Nack, Return
from tenure.contract.options import LeaseOptions
from tenure.contract.replies import Extended, Settled
from tenure.errors import Indeterminate, LeaseLost

__all__ = ["AckBatch", "Kind", "Settling", "send_batch"]


class Settling(Protocol):
    """What the requests go through: an AsyncClient, or the timers of a worker."""

    @property
    def ack(self) -> Callable[..., Coroutine[Any, Any, Settled]]: ...

    @property
    def nack(self) -> Callable[..., Coroutine[Any, Any, Settled]]: ...

    @property
    def return_jobs(self) -> Callable[..., Coroutine[Any, Any, Settled]]: ...

    @property
    def extend(self) -> Callable[..., Coroutine[Any, Any, Extended]]: ...


Kind = Ack | Nack | Return | Extend
"""A command without its jobs: the jobs of equal ones go out together. An empty ``node`` is the client's own."""


class AckBatch(dict[int, "tuple[str, asyncio.Future[Any]]"]):
    """The jobs of one request, by seq, each with its lease and the future of its caller; no seq is in it twice. It is
    empty once every caller has an outcome.
    """

    def resolve(self, answer: Settled | Extended) -> None:
        """Answer each caller for its own job."""
        skipped = set(answer.skipped)
        deadlines = answer.deadlines if isinstance(answer, Extended) else {}
        for seq, (_, future) in self.items():
            if future.done():  # its caller was cancelled
                continue
            if seq in skipped:
                future.set_exception(_lost(seq, repeated=answer.repeated))
            else:
                future.set_result(deadlines.get(seq, True))
        self.clear()

    def fail(self, error: Exception) -> None:
        """Raise one error in every caller."""
        for _, future in self.values():
            if not future.done():
                future.set_exception(own(error))
        self.clear()


async def send_batch(client: Settling, topic: str, *, kind: Kind, batch: AckBatch) -> Settled | Extended:
    """Send one request for all jobs of a batch and return its reply."""
    seqs, fences = list(batch), [lease_id for lease_id, _ in batch.values()]
    # One lease fences all of its jobs: less to write and to read.
    leases: LeaseOptions = {"lease_ids": fences}
    if fences.count(fences[0]) == len(fences):
        leases = {"lease_id": fences[0]}
    node = kind.node or None
    match kind:
        case Ack():
            return await client.ack(topic, seqs, node=node, **leases)
        case Nack():
            how = {"delay_ms": kind.delay_ms, "reason": kind.reason, "dead": kind.dead}
            return await client.nack(topic, seqs, node=node, **how, **leases)
        case Return():
            return await client.return_jobs(
                topic, seqs, node=node, delay_ms=kind.delay_ms, reason=kind.reason, **leases
            )
        case Extend():
            return await client.extend(topic, seqs, node=node, lease_ms=kind.lease_ms, **leases)
        case _:
            assert_never(kind)


def _lost(seq: int, *, repeated: bool) -> LeaseLost | Indeterminate:
    if repeated:
        return Indeterminate(
            f"job {seq}: an answer was lost, and the repeat found the lease ended, maybe by us", seq=seq
        )
    return LeaseLost(f"job {seq} is not ours any more: stop working on it", seq=seq)
