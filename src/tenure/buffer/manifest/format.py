"""What the manifest's objects say: deltas, runs and checkpoints, and how they are coded.

Each is one line of JSON and a second line with the CRC32C of the first, so that a person can read it and a flipped bit
cannot hide. Deltas are chained: each carries the checksum of the one before it.
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
    """One batch in the queue; its sequence is its place."""

    name: str
    bytes: int
    entries: int
    checksum: str
    producer: str
    ordinal: int
    first_ms: int
    last_ms: int


class Run(msgspec.Struct, frozen=True, array_like=True):
    """Where a stretch of entries lies that left the tail, and what must be known without reading it."""

    first_seq: int
    count: int
    checksum: str
    oldest_name: str
    last_ms: int

    @property
    def end_seq(self) -> int:
        return self.first_seq + self.count


class Group(msgspec.Struct, frozen=True, array_like=True):
    """One group: who may consume, and the first sequence it has not acknowledged."""

    epoch: int
    consumer: str
    next_seq: int
    ts_ms: int
    skipped: int


class Genesis(msgspec.Struct, frozen=True, tag="genesis"):
    """The buffer begins; only in delta 0."""

    block: int
    groups: list[str]


class Append(msgspec.Struct, frozen=True, tag="append"):
    """The batches join the queue, in order."""

    entries: list[Entry]


class Epoch(msgspec.Struct, frozen=True, tag="epoch"):
    """A consumer takes the group over, and its frontier stands at ``next_seq``."""

    group: str
    epoch: int
    consumer: str
    next_seq: int


class Frontier(msgspec.Struct, frozen=True, tag="frontier"):
    """Everything below ``next_seq`` is acknowledged by the group."""

    group: str
    epoch: int
    next_seq: int


class Skip(msgspec.Struct, frozen=True, tag="skip"):
    """The batch at ``seq``, the group's next one, is given up; a quarantine object says why."""

    group: str
    epoch: int
    seq: int


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """The group is gone and pins nothing any more."""

    group: str


class Seal(msgspec.Struct, frozen=True, tag="seal"):
    """The tail's first entries live in this run from now on."""

    run: Run


class Checkpointed(msgspec.Struct, frozen=True, tag="checkpoint"):
    """There is a checkpoint of the state after delta ``number``."""

    number: int


class Trim(msgspec.Struct, frozen=True, tag="trim"):
    """Batches below ``first_seq`` are referenced no longer."""

    first_seq: int


class Void(msgspec.Struct, frozen=True, tag="void"):
    """No batch named below ``below`` may be committed any more; producers without a name that are silent since
    ``silent_ms`` are forgotten.
    """

    below: str
    silent_ms: int


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """There are too many producers: those without a name of their own whose newest batch is below go."""

    below: str


class Retain(msgspec.Struct, frozen=True, tag="retain"):
    """From now on the buffer keeps each batch for this long after its last entry was produced, whoever collects."""

    retain_for_ms: int


class Floor(msgspec.Struct, frozen=True, tag="floor"):
    """Deltas below ``number`` are covered by a checkpoint and may be freed."""

    number: int


Op = Genesis | Append | Epoch | Frontier | Skip | Drop | Seal | Checkpointed | Trim | Void | Forget | Retain | Floor


class Delta(msgspec.Struct, frozen=True):
    """One commit. ``writer`` and ``nonce`` make its bytes its own, so that a writer recognises them."""

    format: int
    buffer: str
    number: int
    prev: str
    writer: str
    nonce: str
    ts_ms: int
    ops: list[Op]


class RunBody(msgspec.Struct, frozen=True):
    """What a run object holds."""

    format: int
    buffer: str
    first_seq: int
    entries: list[Entry]


class Marker(msgspec.Struct, frozen=True):
    """``buffer.json``: from now on there must be a manifest here."""

    format: int
    buffer: str


class Cut(msgspec.Struct, frozen=True):
    """``plan/<group>/<low>.json``: who plans from ``low`` ends at ``high``, whatever their limits are."""

    format: int
    buffer: str
    low: int
    high: int


class State(msgspec.Struct):
    """The folded manifest; what a checkpoint holds. ``fold`` makes new ones and never changes an old one."""

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
    groups: dict[str, Group] = {}
    producers: Producers = msgspec.field(default_factory=Producers)
    runs: list[Run] = []
    tail: list[Entry] = []

    @property
    def tail_seq(self) -> int:
        """The sequence of the tail's first entry."""
        return self.next_seq - len(self.tail)

    def oldest_name(self) -> str | None:
        """No referenced batch is named below this; None while nothing is referenced."""
        names = [run.oldest_name for run in self.runs] + [entry.name for entry in self.tail]
        return min(names, default=None)


class _Versioned(msgspec.Struct):
    format: int


def plain(value: object) -> object:
    """A type of ours as one that msgspec knows."""
    if isinstance(value, Producers):
        return value.plain()
    raise NotImplementedError(type(value))


def _restored(kind: type, value: object) -> object:
    """The opposite of ``plain``."""
    if kind is Producers:
        return Producers(msgspec.convert(value, dict[str, ProducerRecord]))
    raise NotImplementedError(kind)


_encoder = msgspec.json.Encoder(enc_hook=plain)
_versioned = msgspec.json.Decoder(_Versioned)
_decoders: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind, dec_hook=_restored) for kind in (Delta, RunBody, Marker, State, Cut)
}


def checksum_of(data: bytes | memoryview) -> str:
    """CRC32C as eight hexadecimal digits."""
    return f"{crc32c(data):08x}"


def encode(value: Delta | RunBody | Marker | State | Cut) -> bytes:
    """The object's bytes."""
    body = _encoder.encode(value)
    return body + b'\n"%s"\n' % checksum_of(body).encode()


def decode(kind: type[T], data: bytes, key: str) -> T:
    """The value in an object's bytes; raises Corrupt, saying whether it is damage or a newer format."""
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
