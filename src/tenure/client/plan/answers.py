"""From an answer to a reply or an error: statuses and codes of the wire become the few errors again."""

from __future__ import annotations

import secrets
from typing import Any, TypeVar

import msgspec

from tenure.client.transport.wire import Response
from tenure.contract.statuses import KIND_OF_STATUS
from tenure.contract.surrogates import mask_lone, unmask
from tenure.errors import Corrupt, Indeterminate, Overloaded, TenureError

__all__ = ["by_code", "decode", "decode_text", "error_of", "is_ours"]

T = TypeVar("T")

_GATEWAY = frozenset({502, 503, 504})
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
    if not said.code and response.status in _GATEWAY:
        message = f"something in between answered {response.status}: the server behind it is away"
        away = Overloaded(message, code="unreachable")
        away.detail = {"status": response.status}
        return away
    message = said.message or f"the server answered {response.status} and said no more"
    return by_code(response.status, said.code, message, said.detail)


def by_code(status: int, code: str, message: str, detail: dict[str, Any]) -> TenureError:
    """An error from its parts; details that the constructor cannot take by name are set aside."""
    kind = _BY_CODE.get(code) or KIND_OF_STATUS.get(status, TenureError)
    error = kind(message, code=code or None)
    error.detail = {"status": status} | detail
    return error


def decode(decoder: msgspec.json.Decoder[T], response: Response) -> T:
    """The reply. Raises TenureError where a success does not say what it should."""
    return decode_text(decoder, response.body)


def decode_text(decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    """What a text of the server's says, with ``data`` and ``meta`` kept to the byte whatever stands in them.

    A job whose data holds half a surrogate pair is as good as any: it must not make the others unreadable.
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
    return TenureError(f"this is not what this client knows: {error}", code="bad_answer")


def _unmask_raw(value: Any, word: bytes) -> Any:
    """The same reply with its raw parts as they were."""
    if isinstance(value, msgspec.Raw):
        return msgspec.Raw(unmask(bytes(value), word))
    if isinstance(value, list):
        return [_unmask_raw(item, word) for item in value]
    if isinstance(value, msgspec.Struct):
        parts = {name: _unmask_raw(getattr(value, name), word) for name in value.__struct_fields__}
        return type(value)(**parts)
    return value
