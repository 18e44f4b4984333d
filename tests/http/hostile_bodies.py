"""Append bodies of a given size that are made to cost much, by kind; all of them within the limits of the wire."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["HOSTILE", "honest"]

RECORD_BYTES = 1_000_000


def honest(size: int) -> bytes:
    """Records of 256 bytes."""
    return _of(b'{"data":"' + b"x" * 245 + b'"}', size)


def _of(record: bytes, size: int) -> bytes:
    """A body of so many bytes, made of one record again and again."""
    return b'{"records":[' + b",".join([record] * max(1, size // (len(record) + 1))) + b"]}"


def _data(unit: bytes, *, before: bytes = b"[", after: bytes = b"0]") -> Callable[[int], bytes]:
    """Bodies whose records are as large as they may be, and whose data repeats a unit."""

    def body(size: int) -> bytes:
        room = min(size, RECORD_BYTES) - len(before) - len(after) - 11
        return _of(b'{"data":' + before + unit * (room // len(unit)) + after + b"}", size)

    return body


def _text(unit: bytes) -> Callable[[int], bytes]:
    return _data(unit, before=b'"', after=b'"')


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "teeth": _data(b"[" * 500 + b"1" + b"]" * 500 + b","),
    "pairs of brackets": _data(b"[],"),
    "strings of brackets": _data(b'["["],'),
    "objects": _data(b'{"[":{}},'),
    "escapes": _text(rb"\n"),
    "escaped quotes": _text(rb"\""),
    "surrogate pairs": _text(rb"\ud83d\ude00"),
    "half pairs": _text(rb"\ud800"),
    "half pairs in small records": lambda size: _of(rb'{"data":"\udc00"}', size),
    "no ASCII": _text("é".encode()),
    "records that look like others": _text(rb"},{\"data\":1},{"),
    "unknown fields": lambda size: _of(b'{"data":1' + b',"":0' * 31 + b"}", size),
    "too many fields": lambda size: _of(b'{"data":1' + b',"":0' * 1_000 + b"}", size),
    "half pairs and backslashes": _text(rb"\ud800" + rb"\\" * 400_000),
    "fields given twice": lambda size: _of(b'{"data":1,"data":' + b"[" * 300 + b"]" * 300 + b"}", size),
    "data given twice": lambda size: _of(b'{"data":[' + b"1," * 400_000 + b"1]" + b',"data":1}', size),
    "many small records": lambda size: _of(b'{"data":1}', size),
    "spaces in records": lambda size: _of(b'{"data":1' + b" " * 100_000 + b"}", size),
    "spaces between records": lambda size: _of(b'{"data":1}' + b" " * 100_000, size),
    "an unknown list": lambda size: b'{"records":[{"data":1}],"x":[' + b"[]," * (size // 3) + b"0]}",
    "unknown names": lambda size: b'{"records":[{"data":1}]' + b',"":0' * (size // 5) + b"}",
    "one record": lambda size: b'{"records":[{"data":"' + b"x" * size + b'"}]}',
    "no end": lambda size: b'{"records":[' + b'{"data":1},' * (size // 11),
    "spaces": lambda size: b" " * size,
    "brackets": lambda size: b"[" * size,
}
