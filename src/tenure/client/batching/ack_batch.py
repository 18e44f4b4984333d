"""What one request settles: a lot of jobs, and what is done with all of them alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, assert_never

import msgspec

from tenure.client.batching.gather import own
from tenure.contract.replies import Extended, Settled
from tenure.errors import Indeterminate, LeaseLost

__all__ = ["ACK", "Ack", "AckBatch", "Extend", "Kind", "Nack", "Settling", "send_lot"]


class Settling(Protocol):
    """What the requests go through: an AsyncClient, or whoever else keeps jobs on leases."""

    @property
    def ack(self) -> Callable[..., Coroutine[Any, Any, Settled]]: ...

    @property
    def nack(self) -> Callable[..., Coroutine[Any, Any, Settled]]: ...

    @property
    def extend(self) -> Callable[..., Coroutine[Any, Any, Extended]]: ...


class Ack(msgspec.Struct, frozen=True):
    """Complete."""


class Nack(msgspec.Struct, frozen=True):
    """Give back."""

    delay_ms: int | None
    reason: str | None
    dead: bool


class Extend(msgspec.Struct, frozen=True):
    """Keep."""

    lease_ms: int


Kind = Ack | Nack | Extend
"""A call and its parameters: what is equal in this goes out together."""
ACK: Final = Ack()


class AckBatch(dict[int, "tuple[str, asyncio.Future[Any]]"]):
    """The jobs of one request, by seq, each with its lease and who waits for its outcome; no seq is in it twice. It is
    empty once every caller has an outcome.
    """

    def tell(self, answer: Settled | Extended) -> None:
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
        """Tell all callers of one error."""
        for _, future in self.values():
            if not future.done():
                future.set_exception(own(error))
        self.clear()


async def send_lot(client: Settling, topic: str, *, node: str | None, kind: Kind, lot: AckBatch) -> Settled | Extended:
    """One request for all of a lot; returns what was answered."""
    seqs, fences = list(lot), [lease_id for lease_id, _ in lot.values()]
    # One lease fences all of its jobs: less to write and to read.
    ids, one = (None, fences[0]) if fences.count(fences[0]) == len(fences) else (fences, None)
    match kind:
        case Ack():
            return await client.ack(topic, seqs, node=node, lease_ids=ids, lease_id=one)
        case Nack(delay_ms, reason, dead):
            return await client.nack(
                topic, seqs, node=node, lease_ids=ids, lease_id=one, delay_ms=delay_ms, reason=reason, dead=dead
            )
        case Extend(lease_ms):
            return await client.extend(topic, seqs, node=node, lease_ids=ids, lease_id=one, lease_ms=lease_ms)
        case _:
            assert_never(kind)


def _lost(seq: int, *, repeated: bool) -> LeaseLost | Indeterminate:
    if repeated:
        return Indeterminate(
            f"job {seq}: an answer was lost, and the repeat found the lease ended, maybe by us", seq=seq
        )
    return LeaseLost(f"job {seq} is not ours any more: stop working on it", seq=seq)
