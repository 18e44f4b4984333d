"""Answers decoded: a success into its reply, any other status and code into a TenureError.

An error that no Tenure server wrote (a redirect, the page of a proxy, a stranger at that address) is named as such. It
is no statement about topics and jobs: a worker that is told 404 by a proxy must not take its jobs for gone.
"""

from __future__ import annotations

import secrets
from typing import Any, TypeVar

import msgspec

from tenure.client.transport.wire import Response
from tenure.contract.statuses import KIND_OF_STATUS
from tenure.contract.surrogates import mask_lone, unmask
from tenure.errors import Corrupt, Denied, Indeterminate, Invalid, NotLeader, Overloaded, TenureError

__all__ = ["decode", "decode_text", "error_from_code", "error_of", "is_from_server"]

T = TypeVar("T")

_GATEWAY = frozenset({502, 503, 504})
_FOREIGN: dict[int, type[TenureError]] = {
    400: Invalid,
    401: Denied,
    403: Denied,
    413: Invalid,
    421: NotLeader,
    429: Overloaded,
}
"""What the caller does next is the same whoever answers with one of these."""
_SHOWN_CHARS_MAX = 200
_BY_CODE: dict[str, type[TenureError]] = {
    "indeterminate": Indeterminate,
    "corrupt": Corrupt,
    "format_too_new": Corrupt,
    "unreadable": Corrupt,
    "disk_full": Overloaded,
    "store_away": Overloaded,
    "checkpoint_failed": Overloaded,
    "not_leader": NotLeader,
}


class _ErrorFields(msgspec.Struct):
    code: str = ""
    message: str = ""
    detail: dict[str, Any] = {}


class _ErrorBody(msgspec.Struct):
    error: _ErrorFields


_decode_error = msgspec.json.Decoder(_ErrorBody).decode


def is_from_server(response: Response) -> bool:
    """Return whether a Tenure server wrote an error, and not a gateway in between."""
    try:
        return bool(_decode_error(response.body).error.code)
    except msgspec.DecodeError:
        return False


def error_of(response: Response) -> TenureError:
    """Return the error of an answer that is no success."""
    try:
        fields = _decode_error(response.body).error
    except msgspec.DecodeError:
        fields = _ErrorFields()
    if not fields.code:
        return _foreign_error(response)
    message = fields.message or f"the server answered {response.status} {fields.code}, and no more"
    return error_from_code(response.status, fields.code, message, fields.detail)


def _foreign_error(response: Response) -> TenureError:
    """Return the error of an answer that no Tenure server wrote."""
    status, location = response.status, _shown(response, "location")
    error: TenureError
    if status in _GATEWAY:
        message = f"something in between answered {status}: the server behind it is away"
        error = Overloaded(message, code="unreachable")
    elif 300 <= status < 400:
        where = f" to {location}" if location else ""
        message = f"{status} is a redirect{where}, which no client follows: use the URL of the Tenure server itself"
        error = TenureError(message, code="redirected")
    else:
        kind = _shown(response, "content-type")
        what = f"{status} with {kind}" if kind else f"{status}"
        message = f"this is no answer of a Tenure server: {what}. Is the URL that of one, or is something in between?"
        error = _FOREIGN.get(status, TenureError)(message, code="not_tenure")
    error.detail = {"status": status} | ({"location": location} if location else {})
    return error


def _shown(response: Response, header: str) -> str:
    """Return a header that anybody may have written, fit for a terminal."""
    text = response.headers.get(header, "")[:_SHOWN_CHARS_MAX]
    return text.encode("ascii", "backslashreplace").decode()


def error_from_code(status: int, code: str, message: str, detail: dict[str, Any]) -> TenureError:
    """Return an error from its parts. Details are set afterwards, because they may have any name."""
    kind = _BY_CODE.get(code) or KIND_OF_STATUS.get(status, TenureError)
    error = kind(message, code=code or None)
    error.detail = {"status": status} | detail
    return error


def decode(decoder: msgspec.json.Decoder[T], response: Response) -> T:
    """Return the reply of a success. Raises TenureError (``bad_answer``) where it cannot be decoded."""
    return decode_text(decoder, response.body)


def decode_text(decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    """Decode a text of the server, with ``data`` and ``meta`` kept byte for byte.

    Raises TenureError (``bad_answer``). A lone surrogate in one job must not make the others unreadable, so it is
    masked while the text is decoded.
    """
    try:
        return decoder.decode(text)
    except msgspec.DecodeError as error:
        word = secrets.token_hex(8).encode()
        masked = None if isinstance(error, msgspec.ValidationError) else mask_lone(text, word)
        if masked is None:
            raise _bad_answer(error) from error
    try:
        reply: T = _unmask_raw(decoder.decode(masked), word)
    except msgspec.DecodeError as error:
        raise _bad_answer(error) from error
    return reply


def _bad_answer(error: Exception) -> TenureError:
    message = f"this is not what this client knows: {error}. Is the URL that of a Tenure server?"
    return TenureError(message, code="bad_answer")


def _unmask_raw(value: Any, word: bytes) -> Any:
    """Return the reply with its raw parts as they were before they were masked."""
    if isinstance(value, msgspec.Raw):
        return msgspec.Raw(unmask(bytes(value), word))
    if isinstance(value, list):
        return [_unmask_raw(item, word) for item in value]
    if isinstance(value, msgspec.Struct):
        parts = {name: _unmask_raw(getattr(value, name), word) for name in value.__struct_fields__}
        return type(value)(**parts)
    return value
