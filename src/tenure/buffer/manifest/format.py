"""The manifest's objects and their encoding: deltas with their operations, runs, checkpoints.

Each is one line of JSON and a second line with the CRC32C of the first, so that a person can read it and a flipped bit
is found. Deltas are chained: each carries the checksum of the one before it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from crc32c import crc32c

from tenure.buffer.manifest.producers import ProducerRecord, Producers
from tenure.errors import Corrupt

__all__ = [
    "FORMAT",
    "Append",
    "Checkpointed",
    "Cut",
    "Delta",
    "Drop",
    "Entry",
    "Epoch",
    "Floor",
    "Forget",
    "Frontier",
    "Genesis",
    "Group",
    "Marker",
    "Op",
    "Requests",
    "Retain",
    "Run",
    "RunBody",
    "Seal",
    "Skip",
    "State",
    "Trim",
    "Void",
    "checksum_of",
    "decode",
    "encode",
    "plain",
]

FORMAT = 1
T = TypeVar("T")


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One batch in the queue; its sequence follows from its position."""

    name: str
    bytes: int
    entries: int
    checksum: str
    producer: str
    ordinal: int
    first_ms: int
    last_ms: int


class Run(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of entries that left the tail: where it is stored, and what must be known without reading it."""

    first_seq: int
    count: int
    checksum: str
    oldest_name: str
    last_ms: int

    @property
    def end_seq(self) -> int:
        return self.first_seq + self.count


class Group(msgspec.Struct, frozen=True, array_like=True):
    """One group: which consumer may consume, and the first sequence it has not acknowledged."""

    epoch: int
    consumer: str
    next_seq: int
    ts_ms: int
    skipped: int


class Genesis(msgspec.Struct, frozen=True, tag="genesis"):
    """Creation of the buffer; only in delta 0."""

    block: int
    groups: list[str]


class Append(msgspec.Struct, frozen=True, tag="append"):
    """Batches that join the queue, in order."""

    entries: list[Entry]


class Epoch(msgspec.Struct, frozen=True, tag="epoch"):
    """A takeover of the group by a consumer; its frontier stands at ``next_seq``."""

    group: str
    epoch: int
    consumer: str
    next_seq: int


class Frontier(msgspec.Struct, frozen=True, tag="frontier"):
    """An acknowledgement by the group of everything below ``next_seq``."""

    group: str
    epoch: int
    next_seq: int


class Skip(msgspec.Struct, frozen=True, tag="skip"):
    """A batch given up: the group's next one, at ``seq``; a quarantine object has the reason."""

    group: str
    epoch: int
    seq: int


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """Removal of a group: it pins nothing any more."""

    group: str


class Seal(msgspec.Struct, frozen=True, tag="seal"):
    """A move of the tail's first entries into this run."""

    run: Run


class Checkpointed(msgspec.Struct, frozen=True, tag="checkpoint"):
    """A note that there is a checkpoint of the state after delta ``number``."""

    number: int


class Trim(msgspec.Struct, frozen=True, tag="trim"):
    """Removal of the references to batches below ``first_seq``."""

    first_seq: int


class Void(msgspec.Struct, frozen=True, tag="void"):
    """A ban on commits of batches named below ``below``.

    Producers without a name that have been silent since ``silent_ms`` are forgotten.
    """

    below: str
    silent_ms: int


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """Removal of unnamed producers whose newest batch is below: there are too many."""

    below: str


class Retain(msgspec.Struct, frozen=True, tag="retain"):
    """A change of the retention: each batch stays this long after it was stored, for every collector."""

    retain_for_ms: int


class Floor(msgspec.Struct, frozen=True, tag="floor"):
    """A note that deltas below ``number`` are covered by a checkpoint and may be freed."""

    number: int


Op = Genesis | Append | Epoch | Frontier | Skip | Drop | Seal | Checkpointed | Trim | Void | Forget | Retain | Floor


class Requests(msgspec.Struct, frozen=True, array_like=True):
    """What was asked of the store: requests billed as writes, those billed as reads, and commits that met another."""

    writes: int = 0
    reads: int = 0
    conflicts: int = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(self.writes + other.writes, self.reads + other.reads, self.conflicts + other.conflicts)

    def __sub__(self, other: Requests) -> Requests:
        return Requests(self.writes - other.writes, self.reads - other.reads, self.conflicts - other.conflicts)


class Delta(msgspec.Struct, frozen=True):
    """One commit. ``writer`` and ``nonce`` make its bytes unique, so that a writer recognises its own.

    ``requests`` is what the writer asked since its commit before, this one included; a version that did not count them
    wrote None.
    """

    format: int
    buffer: str
    number: int
    prev: str
    writer: str
    nonce: str
    ts_ms: int
    ops: list[Op]
    requests: Requests | None = None


class RunBody(msgspec.Struct, frozen=True):
    """The content of a run object."""

    format: int
    buffer: str
    first_seq: int
    entries: list[Entry]


class Marker(msgspec.Struct, frozen=True):
    """``buffer.json``: a prefix that has it must have a manifest."""

    format: int
    buffer: str


class Cut(msgspec.Struct, frozen=True):
    """``plan/<group>/<low>.json``: a range planned from ``low`` ends at ``high``, for every planner and its limits."""

    format: int
    buffer: str
    low: int
    high: int


class State(msgspec.Struct):
    """The folded manifest, and the content of a checkpoint. ``fold`` returns a new one and never changes an old one.

    ``requests`` is what its writers have asked of the store; None where one of them did not count.
    """

    format: int
    buffer: str
    block: int
    number: int = -1
    chain: str = ""
    ts_ms: int = 0
    first_seq: int = 0
    next_seq: int = 0
    entries_total: int = 0
    bytes_total: int = 0
    void: str = ""
    forgotten: str = ""
    floor: int = 0
    checkpoint: int = -1
    retain_for_ms: int = 0
    newest_name: str = ""
    requests: Requests | None = None
    groups: dict[str, Group] = {}
    producers: Producers = msgspec.field(default_factory=Producers)
    runs: list[Run] = []
    tail: list[Entry] = []

    @property
    def tail_seq(self) -> int:
        """Return the sequence of the tail's first entry."""
        return self.next_seq - len(self.tail)

    def oldest_name(self) -> str | None:
        """Return a name below which no batch is referenced; None while nothing is referenced."""
        names = [run.oldest_name for run in self.runs] + [entry.name for entry in self.tail]
        return min(names, default=None)


class _Versioned(msgspec.Struct):
    format: int


def plain(value: object) -> object:
    """Convert a type of ours to one that msgspec knows."""
    if isinstance(value, Producers):
        return value.plain()
    raise NotImplementedError(type(value))


def _restore(kind: type, value: object) -> object:
    """Convert back from ``plain``."""
    if kind is Producers:
        return Producers(msgspec.convert(value, dict[str, ProducerRecord]))
    raise NotImplementedError(kind)


_encoder = msgspec.json.Encoder(enc_hook=plain)
_versioned = msgspec.json.Decoder(_Versioned)
_decoders: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind, dec_hook=_restore) for kind in (Delta, RunBody, Marker, State, Cut)
}


def checksum_of(data: bytes | memoryview) -> str:
    """Return the CRC32C as eight hexadecimal digits."""
    return f"{crc32c(data):08x}"


def encode(value: Delta | RunBody | Marker | State | Cut) -> bytes:
    """Return the object's bytes."""
    body = _encoder.encode(value)
    return body + b'\n"%s"\n' % checksum_of(body).encode()


def decode(kind: type[T], data: bytes, key: str) -> T:
    """Return the value in an object's bytes. Raises Corrupt, which says whether it is damage or a newer format."""
    body, _, rest = data.partition(b"\n")
    if rest != b'"%s"\n' % checksum_of(body).encode():
        raise Corrupt(f"{key} is damaged: its checksum does not match", code="manifest_damaged", key=key)
    try:
        version = _versioned.decode(body).format
        if version > FORMAT:
            raise Corrupt(
                f"{key} has format {version}, this program knows {FORMAT}: upgrade it", code="unknown_format", key=key
            )
        value: T = _decoders[kind].decode(body)
    except msgspec.DecodeError as error:
        raise Corrupt(f"{key} is not what its name says: {error}", code="manifest_damaged", key=key) from None
    return value
