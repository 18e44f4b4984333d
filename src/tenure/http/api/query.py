"""Query parameters, checked as strictly as bodies: unknown ones are ignored, malformed ones of ours are Invalid."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

from tenure.contract.names import describe_value
from tenure.errors import Invalid
from tenure.http.wire.message import Request

__all__ = ["Query"]

_FIELDS_MAX: Final = 64
_U64_MAX: Final = 2**64 - 1
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}


class Query:
    """The parameters of one request. A parameter given twice, or that is no UTF-8, is Invalid when it is read."""

    __slots__ = ("_given",)

    def __init__(self, request: Request) -> None:
        self._given: list[tuple[str, str]] = []
        if request.query:
            parts = request.query.split("&")
            if len(parts) > _FIELDS_MAX:
                raise Invalid(f"the query has {len(parts)} parameters: at most {_FIELDS_MAX}")
            for part in parts:
                name, _, value = part.partition("=")
                self._given.append((name, value))

    def text(self, name: str) -> str | None:
        """Return a parameter as text, or None where it is not given."""
        found = [value for given, value in self._given if _plain(given, name)]
        if not found:
            return None
        if len(found) > 1:
            raise Invalid(f"{name} is given twice: give it once", field=name)
        try:
            return unquote_to_bytes(found[0].replace("+", " ")).decode()
        except (UnicodeDecodeError, UnicodeEncodeError):
            raise Invalid(f"{name} is not valid UTF-8", field=name) from None

    def whole(self, name: str, default: int) -> int:
        """Return a parameter as a u64, or the default where it is not given."""
        text = self.text(name)
        if text is None:
            return default
        if text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= _U64_MAX:
            return int(text)
        raise Invalid(f"{name} must be a whole number from 0 to {_U64_MAX}; got {describe_value(text)}", field=name)

    def whole_or_none(self, name: str) -> int | None:
        """Return a parameter as a u64, or None where it is not given."""
        return None if self.text(name) is None else self.whole(name, 0)

    def flag(self, name: str, default: bool) -> bool:
        """Return a parameter as true or false; 1 and 0 are taken too."""
        text = self.text(name)
        if text is None:
            return default
        if text in _FLAGS:
            return _FLAGS[text]
        raise Invalid(f"{name} must be true or false; got {describe_value(text)}", field=name)


def _plain(given: str, name: str) -> bool:
    if "%" not in given:
        return given == name
    return unquote_to_bytes(given.encode("utf-8", "replace")) == name.encode()
