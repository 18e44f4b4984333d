"""Verdicts: ack, nack and reject, the exceptions that set them, and the ack policies that derive them.

    handler …            ACK_FIRST   ACK    REJECT_ON_ERROR   NACK_ON_ERROR            MANUAL
    returns              (acked)     ack    ack               ack                      none
    raises               (acked)     ack    reject            nack, after N reject     none
    raises Ack/Nack/…    (acked)     that verdict, in every other policy
    is cancelled         none        none   none              none                     none

Without a verdict the lease ends: the job comes back when it expires, or when the worker gives it back.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from tenure.durations import Duration, ms_of
from tenure.worker.backoff import DELAY_MS_MAX, BackoffRule
from tenure.worker.observing.reason import bounded, reason_of

__all__ = [
    "ACKED",
    "RETURNED",
    "Ack",
    "AckPolicy",
    "Nack",
    "NotTried",
    "Reject",
    "Verdict",
    "VerdictKind",
    "is_failure",
    "verdict_of",
]


class AckPolicy(Enum):
    """When a job is acked; the names are FastStream's.

    >>> from tenure import AckPolicy, App
    >>> app = App()
    >>> @app.task("metrics", policy=AckPolicy.ACK_FIRST)
    ... async def count(point: float) -> None: ...
    >>> count.options.policy.name
    'ACK_FIRST'
    """

    ACK_FIRST = "ack_first"
    """Before the handler runs: at most once."""
    ACK = "ack"
    """After the handler, whether it failed or not."""
    REJECT_ON_ERROR = "reject_on_error"
    """A failure dead-letters the job at once."""
    NACK_ON_ERROR = "nack_on_error"
    """A failure gives the job back with a back-off, and dead-letters it once its retries are spent."""
    MANUAL = "manual"
    """The handler decides: `ctx.ack()`, `ctx.nack()`, `ctx.reject()`."""


class VerdictKind(Enum):
    """The kind of a verdict."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"


class Verdict(msgspec.Struct, frozen=True):
    """The result of one job, sent to the broker. ``delay_ms`` None leaves the delay to the queue. ``returned`` is a
    nack of a job that was not tried: it was not begun, or not to its end.
    """

    kind: VerdictKind
    delay_ms: int | None = None
    reason: str | None = None
    returned: bool = False


ACKED: Final = Verdict(VerdictKind.ACK)
RETURNED: Final = Verdict(VerdictKind.NACK, 0, None, returned=True)
"""Gives a job back for another delivery, by others or later: this one was no try."""


class Ack(Exception):
    """Raise it in a handler to ack the job."""


class Nack(Exception):
    """Raise it in a handler to give the job back, to be delivered again after ``delay``, or after the queue's back-off.

    It never rejects, however often. With a reason it counts as a failure of the job, without one it does not.
    """

    def __init__(self, reason: str = "", *, delay: Duration | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay_ms = None if delay is None else ms_of(delay, field="delay", max_ms=DELAY_MS_MAX)


class NotTried(Nack):
    """Raised by the worker itself where it could not run a handler."""


class Reject(Exception):
    """Raise it in a handler to dead-letter the job with this reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


def is_failure(error: BaseException | None) -> bool:
    """Return whether a handler failed, rather than returned or set its verdict."""
    return error is not None and not isinstance(error, Ack | Nack | Reject)


def verdict_of(
    error: BaseException | None, policy: AckPolicy, *, seq: int, failures: int, retries: int, backoff: BackoffRule
) -> Verdict | None:
    """Return the verdict for what the handler raised, by the table above; None for no verdict.

    ``failures`` includes this one; more failures than ``retries`` reject the job.
    """
    if policy is AckPolicy.ACK_FIRST:
        return None
    match error:
        case Ack():
            return ACKED
        case NotTried():
            return RETURNED
        case Nack():
            return Verdict(VerdictKind.NACK, error.delay_ms, bounded(error.reason) or None)
        case Reject():
            return Verdict(VerdictKind.REJECT, None, bounded(error.reason) or "rejected by its handler")
    if policy is AckPolicy.MANUAL:
        return None
    if error is None or policy is AckPolicy.ACK:
        return ACKED
    if policy is AckPolicy.REJECT_ON_ERROR or failures > retries:
        return Verdict(VerdictKind.REJECT, None, reason_of(error))
    return Verdict(VerdictKind.NACK, backoff.delay_ms(failures, seq=seq), reason_of(error))
