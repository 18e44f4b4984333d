"""What becomes of a job: the verdict, the exceptions that set it, the policies that derive it, and the rule itself.

    handler …            ACK_FIRST   ACK    REJECT_ON_ERROR   NACK_ON_ERROR            MANUAL
    returns              (acked)     ack    ack               ack                      none
    raises               (acked)     ack    reject            nack, after N reject     none
    raises Ack/Nack/…    (acked)     what it says, in every other policy
    is cancelled         none        none   none              none                     none

No verdict means that the lease simply ends: the job comes back when it expires, or when the worker gives it back.
"""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["Ack", "AckPolicy", "Nack", "Reject", "Verdict", "VerdictKind"]


class AckPolicy(Enum):
    """When a job is acknowledged, by FastStream's names."""

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
    """What is sent to the broker."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"


class Verdict(msgspec.Struct, frozen=True):
    """What the broker is told about one job. ``delay_ms`` None leaves the delay to the queue."""

    kind: VerdictKind
    delay_ms: int | None = None
    reason: str | None = None


class Ack(Exception):
    """Raise it in a handler: the job is done, whatever else happened."""


class Nack(Exception):
    """Raise it in a handler: give the job back, to be delivered again after ``delay``."""

    def __init__(self, reason: str = "", *, delay: object = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay = delay


class Reject(Exception):
    """Raise it in a handler: the job cannot be done; dead-letter it with this reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
