"""The keys of a buffer's objects, and the rising names (ULIDs) of its batches."""

from __future__ import annotations

import re
import secrets

__all__ = [
    "BATCH",
    "CHECKPOINT",
    "DELTA",
    "FREED",
    "MARKER",
    "NOTE",
    "PLAN",
    "QUARANTINE",
    "RUN",
    "RisingNames",
    "batch_key",
    "checkpoint_key",
    "delta_key",
    "freed_key",
    "fresh_id",
    "is_fresh_id",
    "note_key",
    "notes_prefix",
    "plan_key",
    "quarantine_key",
    "run_key",
    "successor",
]

MARKER = "buffer.json"
BATCH = re.compile(r"data/([0-9A-HJKMNP-TV-Z]{26})\.parquet")
DELTA = re.compile(r"manifest/(\d{20})\.json")
CHECKPOINT = re.compile(r"manifest/checkpoint-(\d{20})\.json")
RUN = re.compile(r"manifest/run-(\d{20})-([0-9a-f]{8})\.json")
FREED = re.compile(r"manifest/freed-(\d{20})\.json")
QUARANTINE = re.compile(r"quarantine/(\d{20})-(.+)\.json")
PLAN = re.compile(r"plan/([^/]+)/(\d{20})\.json")
NOTE = re.compile(r"pipeline/([^/]+)/(\d{15})-[0-9a-f]{8}\.json")
_FRESH_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80


class RisingNames:
    """A source of ULIDs that always rise, also when the clock goes back, and above any mark that the caller gives."""

    def __init__(self) -> None:
        self._last = -1

    def next(self, now_ms: int, above: str = "") -> str:
        """Return a new name, larger than every one before it and than ``above``."""
        drawn = (now_ms << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
        floor = max(self._last, _value(above) if above else -1)
        if drawn <= floor:  # take another millisecond's worth of names: other writers are not in the middle of it
            drawn = (((floor >> _RANDOM_BITS) + 1) << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
        self._last = drawn
        return _text(drawn)


def fresh_id(now_ms: int) -> str:
    """Return a ULID for a producer, a consumer or a buffer."""
    return _text((now_ms << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS))


def is_fresh_id(name: str) -> bool:
    """Return whether a producer's name has the form of a ``fresh_id``: no producer comes back under such a name."""
    return _FRESH_ID.fullmatch(name) is not None


def successor(name: str) -> str:
    """Return the name right above this one."""
    return _text(_value(name) + 1)


def _text(value: int) -> str:
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def _value(text: str) -> int:
    value = 0
    for letter in text:
        value = value << 5 | _ALPHABET.index(letter)
    return value


def batch_key(name: str) -> str:
    return f"data/{name}.parquet"


def delta_key(number: int) -> str:
    return f"manifest/{number:020}.json"


def checkpoint_key(number: int) -> str:
    return f"manifest/checkpoint-{number:020}.json"


def run_key(first_seq: int, checksum: str) -> str:
    return f"manifest/run-{first_seq:020}-{checksum}.json"


def freed_key(block: int) -> str:
    return f"manifest/freed-{block:020}.json"


def quarantine_key(seq: int, group: str) -> str:
    return f"quarantine/{seq:020}-{group}.json"


def plan_key(group: str, low: int) -> str:
    return f"plan/{group}/{low:020}.json"


def notes_prefix(pipeline: str) -> str:
    return f"pipeline/{pipeline}/"


def note_key(pipeline: str, started_ms: int, run_id: str) -> str:
    return f"{notes_prefix(pipeline)}{started_ms:015}-{run_id}.json"
