"""`TimerMessage`: a timer as a FastStream message; its ack, nack and reject are the runtime's verdicts."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, Literal, NotRequired, TypedDict

from faststream.exceptions import HandlerException
from faststream.message import StreamMessage, decode_message

from tenure.faststream.envelope import unpack
from tenure.worker.context import Context
from tenure.worker.observing.reason import reason_of
from tenure.worker.options import TaskOptions
from tenure.worker.verdict import AckPolicy, VerdictKind, verdict_of

__all__ = ["Lease", "TimerMessage", "TimerStreamMessage", "decode_timer", "parse_timer"]


class Lease:
    """Settles one delivery, by the retries and the back-off of its subscriber."""

    def __init__(self, ctx: Context, options: TaskOptions) -> None:
        self.ctx = ctx
        self._options = options

    async def ack(self) -> None:
        await self.ctx.ack()

    async def nack(self, delay: timedelta | None, reason: str) -> None:
        """Nack or reject after a failure, by the retries; nack in any case where the handler asked for it."""
        error, job = sys.exception(), self.ctx.job
        options, failures = self._options, job.failures + 1
        if error is None or isinstance(error, HandlerException):
            delay_ms = options.backoff.delay_ms(job.deliveries, seq=job.seq)
            await self.ctx.nack(reason, delay=delay_ms if delay is None else delay)
            return
        policy, backoff = AckPolicy.NACK_ON_ERROR, options.backoff
        verdict = verdict_of(error, policy, seq=job.seq, failures=failures, retries=options.retries, backoff=backoff)
        assert verdict is not None, "the policy gives one for every failure"
        if verdict.kind is VerdictKind.REJECT:
            await self.ctx.reject(verdict.reason or "")
        else:
            await self.ctx.nack(verdict.reason or "", delay=verdict.delay_ms)

    async def reject(self, reason: str) -> None:
        error = sys.exception()
        if not reason and error is not None and not isinstance(error, HandlerException):
            reason = reason_of(error)
        await self.ctx.reject(reason)


class TimerMessage(TypedDict):
    """The raw message. Without a ``lease``, as in tests and in messages made by hand, there is nothing to settle."""

    type: Literal["timer"]
    channel: str
    timer_id: str
    data: bytes
    deliveries: NotRequired[int]
    lease: NotRequired[Lease | None]


class TimerStreamMessage(StreamMessage[TimerMessage]):
    """A timer under a lease: ack removes it, nack gives it back after a delay, reject makes it a dead letter."""

    @property
    def deliveries(self) -> int:
        """How often the timer was delivered, this time included."""
        return self.raw_message.get("deliveries", 1)

    async def ack(self) -> None:
        if self.committed is None and (lease := self.raw_message.get("lease")) is not None:
            await lease.ack()
        await super().ack()

    async def nack(self, *, delay: timedelta | None = None, reason: str = "") -> None:
        """Give the timer back; without a ``delay``, after the subscriber's back-off."""
        if self.committed is None and (lease := self.raw_message.get("lease")) is not None:
            await lease.nack(delay, reason)
        await super().nack()

    async def reject(self, *, reason: str = "") -> None:
        """Make the timer a dead letter."""
        if self.committed is None and (lease := self.raw_message.get("lease")) is not None:
            await lease.reject(reason)
        await super().reject()


async def parse_timer(message: TimerMessage) -> TimerStreamMessage:
    """Parse a message; the default parser of subscribers."""
    timer_id = message["timer_id"]
    body, headers = unpack(message["data"], timer_id=timer_id)
    return TimerStreamMessage(
        raw_message=message,
        body=body,
        headers=headers,
        content_type=headers.get("content-type"),
        message_id=timer_id,
        correlation_id=headers.get("correlation_id", timer_id),
        reply_to=headers.get("reply_to", ""),
    )


async def decode_timer(message: StreamMessage[TimerMessage]) -> Any:
    """Decode the body of a message; the default decoder of subscribers."""
    return decode_message(message)
