"""HTTP statuses: which codes have one of their own, and which error a status stands for."""

from __future__ import annotations

from typing import Final

from tenure.errors import Closed, Conflict, Denied, Invalid, LeaseLost, NotFound, Overloaded, TenureError

__all__ = ["KIND_OF_STATUS", "STATUS_OF_CODE"]

STATUS_OF_CODE: Final[dict[str, int]] = {
    "unauthorized": 401,
    "not_acceptable": 406,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "topic_full": 422,
    "disk_full": 503,
}
"""The status of the few codes that have one of their own."""

_SPECIAL: Final[dict[int, type[TenureError]]] = {401: Denied, 406: Invalid, 413: Invalid, 415: Invalid, 422: Overloaded}
KIND_OF_STATUS: Final[dict[int, type[TenureError]]] = _SPECIAL | {
    kind.status: kind for kind in (Invalid, Denied, NotFound, Conflict, LeaseLost, Overloaded, Closed)
}
"""The error that a status stands for where the code says no more."""
