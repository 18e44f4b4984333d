"""HTTP statuses: the status of an error code, and the error class of a status."""

from __future__ import annotations

from typing import Final

from tenure.errors import Closed, Conflict, Denied, Invalid, LeaseLost, NotFound, NotLeader, Overloaded, TenureError

__all__ = ["KIND_OF_STATUS", "STATUS_OF_CODE"]

STATUS_OF_CODE: Final[dict[str, int]] = {
    "unauthorized": 401,
    "not_acceptable": 406,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "topic_full": 422,
    "disk_full": 503,
    "store_away": 503,
}
"""Statuses of the codes that do not have that of their error class."""

_SPECIAL: Final[dict[int, type[TenureError]]] = {401: Denied, 406: Invalid, 413: Invalid, 415: Invalid, 422: Overloaded}
KIND_OF_STATUS: Final[dict[int, type[TenureError]]] = _SPECIAL | {
    kind.status: kind for kind in (Invalid, Denied, NotFound, Conflict, LeaseLost, NotLeader, Overloaded, Closed)
}
"""The error class of a status, where the code names none."""
