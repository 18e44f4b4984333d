"""From an answer to a reply or an error: statuses and codes of the wire become the few errors again."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from tenure.client.wire import Response
from tenure.errors import (
    Closed,
    Conflict,
    Corrupt,
    Denied,
    Indeterminate,
    Invalid,
    LeaseLost,
    NotFound,
    Overloaded,
    TenureError,
)

__all__ = ["by_code", "decode", "error_of", "is_ours"]

T = TypeVar("T")

_BY_STATUS: dict[int, type[TenureError]] = {
    400: Invalid,
    401: Denied,
    403: Denied,
    404: NotFound,
    406: Invalid,
    409: Conflict,
    412: LeaseLost,
    413: Invalid,
    415: Invalid,
    422: Overloaded,
    429: Overloaded,
    503: Closed,
}
_BY_CODE: dict[str, type[TenureError]] = {
    "indeterminate": Indeterminate,
    "corrupt": Corrupt,
    "format_too_new": Corrupt,
    "unreadable": Corrupt,
    "disk_full": Overloaded,
    "checkpoint_failed": Overloaded,
}


class _Said(msgspec.Struct):
    code: str = ""
    message: str = ""
    detail: dict[str, Any] = {}


class _ErrorBody(msgspec.Struct):
    error: _Said


_decode_error = msgspec.json.Decoder(_ErrorBody).decode


def is_ours(response: Response) -> bool:
    """Whether an error was written by a Tenure server, and not by something in between."""
    try:
        return bool(_decode_error(response.body).error.code)
    except msgspec.DecodeError:
        return False


def error_of(response: Response) -> TenureError:
    """The error that an answer stands for."""
    try:
        said = _decode_error(response.body).error
    except msgspec.DecodeError:
        said = _Said()
    message = said.message or f"the server answered {response.status} and said no more"
    return by_code(response.status, said.code, message, said.detail)


def by_code(status: int, code: str, message: str, detail: dict[str, Any]) -> TenureError:
    """An error from its parts; details that the constructor cannot take by name are set aside."""
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, TenureError)
    error = kind(message, code=code or None)
    error.detail = {"status": status} | detail
    return error


def decode(decoder: msgspec.json.Decoder[T], response: Response) -> T:
    """The reply. Raises TenureError where a success does not say what it should."""
    try:
        return decoder.decode(response.body)
    except msgspec.DecodeError as error:
        raise TenureError(f"the answer is not what this client knows: {error}", code="bad_answer") from error
