"""The decoded size of a Parquet file, read from its page headers before anything is inflated.

A footer can lie, and 64 kB of zstd can claim two gigabytes. The reader allocates what each page's header claims, so the
sum of those claims is what must be bounded. The headers are parsed with just enough of Thrift's compact protocol.
"""

from __future__ import annotations

from typing import Any

from tenure.errors import Corrupt

__all__ = ["decoded_bytes"]

_PLAIN = 0
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_DEPTH_MAX = 8


def decoded_bytes(data: bytes, metadata: Any, *, plain_column: int) -> int:
    """Return the bytes that all pages claim to inflate to. Raises Corrupt for bytes that are not pages.

    Values of ``plain_column`` must be plain: through a dictionary, one long value could stand for a million.
    """
    total = 0
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                start = min(start, chunk.dictionary_page_offset)
            total += _chunk(data, start, chunk.total_compressed_size, plain=column == plain_column)
    return total


def _chunk(data: bytes, position: int, size: int, *, plain: bool) -> int:
    end, total = position + size, 0
    if position < 0 or end > len(data):
        raise Corrupt("a column reaches beyond the file", code="batch_damaged")
    while position < end:
        header, position = _Thrift(data, position).struct()
        kind, inflated, deflated = header.get(1), header.get(2), header.get(3)
        if not (isinstance(kind, int) and isinstance(inflated, int) and isinstance(deflated, int)):
            raise Corrupt("a page header is incomplete", code="batch_damaged")
        if inflated < 0 or deflated < 0:
            raise Corrupt("a page has a negative size", code="batch_damaged")
        about = header.get({_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}.get(kind, 0))
        encoding = about.get(4 if kind == _DATA_PAGE_V2 else 2) if isinstance(about, dict) else None
        if plain and (kind == _DICTIONARY_PAGE or encoding != _PLAIN):
            raise Corrupt("the entries are not stored plainly", code="batch_damaged")
        total += inflated
        position += deflated
    return total


class _Thrift:
    """A reader of Thrift's compact protocol for small structs of numbers."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def struct(self, depth: int = 0) -> tuple[dict[int, Any], int]:
        """Return the fields by id, and where the struct ends."""
        if depth > _DEPTH_MAX:
            raise Corrupt("a page header is nested too deeply", code="batch_damaged")
        fields: dict[int, Any] = {}
        field = 0
        while (byte := self._byte()) != 0:
            delta, kind = byte >> 4, byte & 15
            field = field + delta if delta else self._zigzag()
            fields[field] = self._value(kind, depth)
        return fields, self._position

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2:  # a boolean is its own type
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._zigzag()
            case 7:
                self._position += 8
                return None
            case 8:
                length = self._varint()
                self._position += length
                return None
            case 12:
                return self.struct(depth + 1)[0]
            case _:
                raise Corrupt("a page header holds what none should", code="batch_damaged")

    def _byte(self) -> int:
        if not 0 <= self._position < len(self._data):
            raise Corrupt("a page header is cut off", code="batch_damaged")
        self._position += 1
        return self._data[self._position - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise Corrupt("a page header holds an endless number", code="batch_damaged")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
