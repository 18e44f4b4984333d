"""The body of an append, read in steps: for bodies that are large, and for those that need a closer look.

The records are found one after the other without building anything, then decoded some at a time. What is outside of
them, and what a record has beside ``data`` and ``meta``, is bounded, so that it can be looked through for fields given
twice. No step takes longer than its share of the loop, for any content; the sum of them grows with the body's length.

Half a surrogate pair is legal inside ``data`` and refused by the decoder: it is written differently while its record
is decoded, and put back afterwards.
"""

from __future__ import annotations

import codecs
import secrets
from collections.abc import Generator, Iterator
from typing import Final

import msgspec

from tenure.contract.bodies import AppendBody
from tenure.contract.records import Record
from tenure.contract.surrogates import mask_all, unmask
from tenure.errors import Invalid
from tenure.http.api.body import check_wholes, invalid_body, twice
from tenure.http.append.json_cursor import Cursor, CutOff, Malformed
from tenure.http.append.records import check_depth, decode_records, find_data, given_twice
from tenure.http.append.request import Append, AppendLimits, Steps, check_count
from tenure.http.wire.message import Body

__all__ = ["AppendScan"]

_PIECE_BYTES: Final = 64 * 1024
_PIECE_RECORDS: Final = 256
_VEILED_BYTES_MIN: Final = 256

_decode_rest = msgspec.json.Decoder(AppendBody).decode


class AppendScan:
    """The steps that read one body."""

    __slots__ = (
        "_body",
        "_cursor",
        "_end",
        "_found",
        "_found_bytes",
        "_limits",
        "_record_bytes_max",
        "_records",
        "_span",
        "_view",
        "_word",
    )

    def __init__(self, body: Body, limits: AppendLimits) -> None:
        self._body = body
        self._view = memoryview(body)
        self._end = len(body)
        self._limits = limits
        self._cursor = Cursor(b"")
        self._record_bytes_max = limits.record_bytes_max + limits.record_fields_bytes_max
        self._records: list[bytes | Record] = []
        self._found: list[bytes] = []
        self._found_bytes = 0
        self._span: tuple[int, int] | None = None
        self._word = secrets.token_hex(4).encode()

    def steps(self) -> Steps:
        """Read the body step by step, and return the append. Raises Invalid."""
        yield from _check_utf8(self._body)
        try:
            self._cursor = Cursor(self._body)
            yield from self._read_fields()
        except Malformed as error:
            raise Invalid(f"the body is not valid JSON: {error}") from None
        return Append(self._records, self._read_rest())

    def _cut(self, start: int, end: int) -> bytes:
        return bytes(self._view[start:end])

    # Outside of the records

    def _read_fields(self) -> Iterator[None]:
        cursor = self._cursor
        cursor.expect(b"{")
        more = not cursor.is_at(b"}")
        while more:
            if cursor.key(self._limits.append_fields_bytes_max) == "records" and cursor.is_at(b"["):
                yield from self._read_records()
            else:
                try:
                    cursor.skip(self._limits.append_fields_bytes_max)
                except CutOff:
                    raise self._too_much() from None
            self._check_rest()
            yield
            more = cursor.take(b",")
        if not cursor.is_at(b"}"):
            raise Malformed(f"}} is missing (byte {cursor.at})")
        self._end = cursor.at + 1
        yield from self._check_end()

    def _check_end(self) -> Iterator[None]:
        """Raise Malformed where anything but white space follows the body's end; of that there may be any amount."""
        for start in range(self._end, len(self._body), _PIECE_BYTES):
            if self._cut(start, start + _PIECE_BYTES).strip(b" \t\n\r"):
                raise Malformed(f"the body goes on after its end (byte {self._end})")
            yield

    def _check_rest(self) -> None:
        start, end = self._span or (0, 0)
        if self._cursor.at - (end - start) > self._limits.append_fields_bytes_max:
            raise self._too_much()

    def _too_much(self) -> Invalid:
        most = self._limits.append_fields_bytes_max
        return Invalid(
            f"the body has more than {most} bytes outside of its records: send only what the server knows",
            code="payload_too_large",
            limit="append_fields_bytes_max",
            max=most,
        )

    def _read_rest(self) -> AppendBody:
        """Decode the body without its records, which have been read."""
        start, end = self._span or (0, 0)
        rest = self._cut(0, start) + b"[]" + self._cut(end, self._end) if end else self._cut(0, self._end)
        try:
            parsed = _decode_rest(rest)
        except (msgspec.DecodeError, RecursionError) as error:
            raise invalid_body(error) from None
        field = twice(rest, AppendBody)
        if field is not None:
            raise given_twice(field)
        if parsed.config is not None:
            check_wholes(parsed.config, "config")
        return parsed

    # Records

    def _read_records(self) -> Iterator[None]:
        if self._span is not None:
            raise given_twice("records")
        cursor, start = self._cursor, self._cursor.at
        cursor.expect(b"[")
        more = not cursor.is_at(b"]")
        while more:
            check_count(len(self._records) + len(self._found) + 1, self._limits.records_max)
            yield from self._find_record()
            more = cursor.take(b",")
        yield from self._decode_found()
        self._span = start, cursor.at + 1
        cursor.expect(b"]")

    def _find_record(self) -> Iterator[None]:
        cursor, start = self._cursor, self._cursor.at
        try:
            cursor.skip(self._record_bytes_max)
        except Malformed as error:
            yield from self._decode_found()
            yield from self._read_masked(error)
            return
        self._found.append(self._cut(start, cursor.at))
        self._found_bytes += cursor.at - start
        if self._found_bytes > _PIECE_BYTES or len(self._found) >= _PIECE_RECORDS:
            yield from self._decode_found()

    def _decode_found(self) -> Iterator[None]:
        """Decode the records that were found since the last time."""
        if self._found:
            yield
            records = yield from decode_records(self._found, first=len(self._records), limits=self._limits)
            self._records += records
            self._found, self._found_bytes = [], 0
            yield

    def _read_masked(self, error: Malformed) -> Iterator[None]:
        """Read a record that the decoder refused: it may have half of a surrogate pair.

        How long it is comes out by trying, with more of the text each time. Raises the error where that is not it.
        """
        start, size = self._cursor.at, _VEILED_BYTES_MIN
        while size:
            yield
            masked = mask_all(self._cut(start, start + size), self._word)
            yield
            cursor = Cursor(masked or b"")
            try:
                cursor.skip(len(cursor.text) - 1)
            except Malformed as refused:
                error = refused if masked else error
                size = self._larger(size, start)
            else:
                yield
                text = (masked or b"")[: cursor.at]
                self._cursor.advance(len(unmask(text, self._word)))
                self._records.append((yield from self._decode_masked(text)))
                return
        if isinstance(error, CutOff) and start + self._record_bytes_max < len(self._body):
            raise self._record_too_large()
        raise Malformed(f"{error}, in records[{len(self._records)}]")

    def _decode_masked(self, text: bytes) -> Generator[None, None, bytes | Record]:
        """Decode a record with half of a surrogate pair, which only its data may have. Raises Invalid."""
        index = len(self._records)
        start, end = yield from find_data(text, index=index, limits=self._limits)
        rest = unmask(text[:start] + b"0" + text[end:], self._word)
        try:
            records = yield from decode_records([rest], first=index, limits=self._limits)
        except msgspec.DecodeError:
            raise Invalid("a string outside of data holds half of a surrogate pair") from None
        yield from check_depth(text[start:end], f"records[{index}].data")
        data = unmask(text[start:end], self._word)
        return data if isinstance(records[0], bytes) else msgspec.structs.replace(records[0], data=data)

    def _larger(self, size: int, start: int) -> int:
        """Return how much to look at after ``size`` bytes were too few; 0 where there is no more."""
        most = min(self._record_bytes_max, len(self._body) - start)
        return min(4 * size, most) if size < most else 0

    def _record_too_large(self) -> Invalid:
        index, most = len(self._records), self._limits.record_bytes_max
        return Invalid(
            f"record {index} is too large: at most {most} bytes of data and meta",
            code="record_too_large",
            index=index,
            limit="record_bytes_max",
            max=most,
        )


def _check_utf8(body: Body) -> Iterator[None]:
    """Raise Invalid unless the bytes are UTF-8; a decoder that keeps raw slices does not check it."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    pending = decoder.getstate
    try:
        for start in range(0, len(body), _PIECE_BYTES):
            piece = body[start : start + _PIECE_BYTES]
            if not (piece.isascii() and pending()[0] == b""):
                decoder.decode(piece)
            yield
        decoder.decode(b"", True)
    except UnicodeDecodeError:
        raise Invalid("the body is not valid UTF-8") from None
