"""A walk over JSON text that builds nothing: from token to token, and over whole values at the speed of the decoder.

The decoder, asked for one raw value, reads to the end of that value and no further, and then reports the byte at which
something else begins. So a value is skipped at the decoder's own speed and with its own idea of what is valid.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Raw

__all__ = ["Cursor", "CutOff", "Malformed"]

_SPACE_BYTES_MAX: Final = 64 * 1024
_SPACE: Final = re.compile(rb"[ \t\n\r]{0,%d}" % _SPACE_BYTES_MAX)
_KEY: Final = re.compile(rb'"([^"\\]{0,256})"[ \t\n\r]{0,16}:[ \t\n\r]{0,16}')
"""A name as it is mostly written."""
_TRAILING: Final = re.compile(r"JSON is malformed: trailing characters \(byte (\d+)\)")

_TRUNCATED: Final = "Input data was truncated"

_BLANK: Final = ord(" ")

_decode_raw = msgspec.json.Decoder(Raw).decode
_decode_text = msgspec.json.Decoder(str).decode


class Malformed(Exception):
    """The text is not valid JSON, or is nested too deeply for the decoder, or has half of a surrogate pair."""


class CutOff(Malformed):
    """The value does not end within the bytes that it may have."""


class Cursor:
    """A place in JSON text, always at a token: white space after a token is passed over with it."""

    __slots__ = ("_view", "at", "text")

    def __init__(self, text: bytes | bytearray) -> None:
        self.text = text
        self.at = 0
        self._view = memoryview(text)
        self._pass_space()

    def is_at(self, token: bytes) -> bool:
        """Return whether this one-byte token comes next."""
        return self.text.startswith(token, self.at)

    def take(self, token: bytes) -> bool:
        """Pass over a one-byte token where it comes next."""
        found = self.text.startswith(token, self.at)
        if found:
            self.at += 1
            self._pass_space()
        return found

    def expect(self, token: bytes) -> None:
        """Pass over a one-byte token. Raises Malformed."""
        if not self.take(token):
            raise Malformed(f"{token.decode()} is missing (byte {self.at})")

    def key(self, bytes_max: int) -> str:
        """Pass over the name of a field and its colon, and return the name. Raises Malformed."""
        plain = _KEY.match(self.text, self.at)
        if plain is not None:
            self.at = plain.end()
            self._pass_space()
            return plain[1].decode()
        if not self.is_at(b'"'):
            raise Malformed(f"a name in double quotes is missing (byte {self.at})")
        start = self.at
        self.skip(bytes_max)
        name = _decode_text(self._view[start : self.at])
        self.expect(b":")
        return name

    def skip(self, bytes_max: int) -> None:
        """Pass over one value of at most so many bytes. Raises Malformed, and CutOff where it does not end in them."""
        end = min(self.at + bytes_max, len(self.text))
        try:
            _decode_raw(self._view[self.at : end])
        except msgspec.DecodeError as error:
            trailing = _TRAILING.fullmatch(str(error))
            if trailing is not None:
                self.at += int(trailing[1]) - 1
                return
            if str(error) == _TRUNCATED and end < len(self.text):
                raise CutOff(str(error)) from None
            raise Malformed(f"{error}, from byte {self.at} on") from None
        except RecursionError:
            raise Malformed("nested too deeply") from None
        self.advance(end - self.at)

    def advance(self, size: int) -> None:
        """Pass over so many bytes."""
        self.at += size
        self._pass_space()

    def _pass_space(self) -> None:
        if self.at < len(self.text) and self.text[self.at] <= _BLANK:
            start = self.at
            self.at = _SPACE.match(self.text, start).end()  # type: ignore[union-attr]  # it matches nothing, too
            if self.at - start == _SPACE_BYTES_MAX:
                raise Malformed(f"there are {_SPACE_BYTES_MAX} bytes of white space in one place (byte {start})")
