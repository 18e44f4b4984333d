"""The job that every peer carries: 256 bytes of JSON with the time it was sent."""

from __future__ import annotations

from bench.peers.scale import PAYLOAD_BYTES

__all__ = ["payload", "sent_ns"]

_HEAD = b'{"sent":'
_DIGITS = 20


def payload(sent_ns: int = 0) -> bytes:
    """Return a job of exactly 256 bytes."""
    head = _HEAD + b"%*d" % (_DIGITS, sent_ns) + b',"body":"'
    return head + b"x" * (PAYLOAD_BYTES - len(head) - 2) + b'"}'


def sent_ns(data: bytes) -> int:
    """Return the time that a job carries, also where a server gives it back without its spaces."""
    start = data.index(b":") + 1
    return int(data[start : data.index(b",", start)])
