"""The few errors of Tenure, each named for what the caller does next.

    TenureError
    ├── Invalid         fix the request; repeating it cannot help
    ├── NotFound        the topic, router or job named is not there
    ├── Denied          this key may not do that
    ├── Conflict        the request contradicts what is stored; read, then decide
    ├── LeaseLost       somebody else may hold the job now; stop working on it
    ├── Overloaded      nothing changed; send the same request later
    ├── Indeterminate   the outcome is unknown; repeat with the same key
    ├── Corrupt         stored bytes are damaged; an operator must look
    └── Closed          this broker or log no longer takes writes
        └── NotLeader   another process leads this log now, and nothing happened here: send the request to that one

``code`` is the word the wire uses for the case; ``detail`` holds what a program needs to react. ``status`` is the HTTP
status of an error, unless its code has one of its own (`contract/statuses.py`); ``exit_code`` is that of a command.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "Closed",
    "Conflict",
    "Corrupt",
    "Denied",
    "Indeterminate",
    "Invalid",
    "LeaseLost",
    "NotFound",
    "NotLeader",
    "Overloaded",
    "TenureError",
]


class TenureError(Exception):
    """The root of every error that Tenure raises on purpose."""

    default_code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, code: str | None = None, **detail: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.detail = detail


class Invalid(TenureError):
    """The request is malformed or out of bounds: fix it, nothing was changed."""

    default_code = "invalid_request"
    status = 400
    exit_code = 2


class NotFound(TenureError):
    """What the request names does not exist: create it first, or check the name."""

    default_code = "not_found"
    status = 404


class Denied(TenureError):
    """The caller's key does not allow this: use another key."""

    default_code = "forbidden"
    status = 403
    exit_code = 6


class Conflict(TenureError):
    """The request contradicts what is stored: read the state, then decide."""

    default_code = "conflict"
    status = 409


class LeaseLost(TenureError):
    """The lease is not the caller's any more: stop working on the job."""

    default_code = "precondition_failed"
    status = 412
    exit_code = 7


class Overloaded(TenureError):
    """A limit or a full disk is in the way: nothing was changed, send the same request later."""

    default_code = "throttled"
    status = 429
    exit_code = 5


class Indeterminate(TenureError):
    """The write may or may not have become durable: repeat it with the same key, or read."""

    default_code = "indeterminate"
    status = 503
    exit_code = 8


class Corrupt(TenureError):
    """Stored bytes are damaged or missing: an operator has to verify or salvage."""

    default_code = "corrupt"
    status = 503


class Closed(TenureError):
    """The broker or its log is closed or has turned read-only: open it again."""

    default_code = "read_only"
    status = 503
    exit_code = 5


class NotLeader(Closed):
    """Another process leads this log now, and nothing of this call happened: send it there."""

    default_code = "not_leader"
    status = 421
