"""Errors as responses: the body of the contract, its status, and the headers that go with it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tenure.contract.statuses import STATUS_OF_CODE
from tenure.errors import Invalid, TenureError
from tenure.http.wire.message import Request, Response

__all__ = ["MethodNotAllowed", "error_response", "too_large"]

_RETRY_AFTER_S: Final = b"1"


class MethodNotAllowed(TenureError):
    """The path exists, the method does not: use one of those in ``allow``."""

    default_code = "method_not_allowed"
    status = 405


def error_response(error: TenureError, request: Request) -> Response:
    """Return the response to an error: the error body of the contract, its status, and the headers that go with it."""
    status = STATUS_OF_CODE.get(error.code) or error.status
    detail = {name: value for name, value in error.detail.items() if name != "allow"}
    body: dict[str, Any] = {"error": {"code": error.code, "message": error.message}}
    if detail:
        body["error"]["detail"] = detail
    body["performance"] = {"server_total_ms": round(request.elapsed_ms, 3)}
    response = Response(status, msgspec.json.encode(body), headers=[])
    if isinstance(error, MethodNotAllowed):
        response.headers.append((b"allow", ", ".join(error.detail["allow"]).encode()))
    if status in (429, 503):
        response.headers.append((b"retry-after", _RETRY_AFTER_S))
    if status == 401:
        response.headers.append((b"www-authenticate", b"Bearer"))
    return response


def too_large(what: str, limit: int) -> Invalid:
    """Return the error of something larger than this server reads; its status is 413 unless another is given."""
    return Invalid(f"{what} is larger than this server reads: send less at once", code="payload_too_large", max=limit)
