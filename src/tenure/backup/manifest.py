"""The manifest of a backup: what it holds, with the digest of every piece. It is written last.

A log is stored file by file: each segment up to where its frames end, and the newest checkpoint. A file is either one
object, where it is a hard link of the log's own, or one object per piece. Either way it has a digest for each
``piece_bytes`` of it, so that it is verified while it is read, in bounded memory, and so that a later backup can refer
to the segments of an earlier one: ``base`` is reserved for that.

    backup.begun              written first, removed last: which folder is being filled
    <folder>/segments/…       the segments
    <folder>/checkpoint…      the checkpoint
    backup.json               the manifest, and its digest
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from tenure.errors import Corrupt
from tenure.log.features import Feature, FeatureSet
from tenure.log.interface import Position
from tenure.log.segment import HEAD_BYTES
from tenure.objects.store import is_key

__all__ = ["BEGUN", "FORMAT", "MANIFEST", "Manifest", "StoredFile", "decode_manifest", "digest", "encode_manifest"]

FORMAT: Final = 1
"""The newest layout of a backup that this program reads, and the one it writes."""
MANIFEST: Final = "backup.json"
BEGUN: Final = "backup.begun"


class StoredFile(msgspec.Struct, frozen=True):
    """A file of the log: its key in the backup, its bytes, and the digest of each piece; ``whole`` is one object.

    ``number`` is that of a segment, and for a checkpoint the batch after it.
    """

    key: str
    number: int
    bytes: int
    sha256: list[str]
    whole: bool = False

    def piece_key(self, index: int) -> str:
        """Return the object that piece ``index`` lies in."""
        return self.key if self.whole else f"{self.key}.{index:06d}"


class EndOfLog(msgspec.Struct, frozen=True):
    """The position at which the backup ends, as `Position` has it."""

    segment: int
    offset: int
    batch: int
    last_offset: int
    last_crc: int
    dropped: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds. ``features`` are those that the log uses, each with the first version that reads it."""

    format: int = FORMAT
    tenure: str
    created_ms: int
    log_id: str
    epoch: int
    end: EndOfLog
    piece_bytes: int
    segments: list[StoredFile]
    checkpoint: StoredFile | None = None
    features: list[tuple[str, str]] = []
    base: str | None = None

    @property
    def position(self) -> Position:
        """Return the position of the log at which the backup ends."""
        return Position(*msgspec.structs.astuple(self.end))

    @property
    def files(self) -> list[StoredFile]:
        """Return every file of the backup."""
        return self.segments if self.checkpoint is None else [*self.segments, self.checkpoint]

    @property
    def bytes(self) -> int:
        """Return the bytes of all files."""
        return sum(file.bytes for file in self.files)


class _Sealed(msgspec.Struct, frozen=True):
    sha256: str
    backup: msgspec.Raw


class _Version(msgspec.Struct, frozen=True):
    format: int
    tenure: str = "?"
    features: list[tuple[str, str]] = []


def digest(data: bytes) -> str:
    """Return the digest of a piece."""
    return sha256(data).hexdigest()


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest, with their own digest."""
    body = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(digest(body), msgspec.Raw(body))) + b"\n"


def decode_manifest(data: bytes) -> Manifest:
    """Decode a manifest. Raises Corrupt where it is damaged, of a newer format, or of a log with a newer feature."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if digest(bytes(sealed.backup)) != sealed.sha256:
            raise _damaged("it fails its checksum")
        version = msgspec.json.decode(sealed.backup, type=_Version)
        if version.format > FORMAT:
            raise _too_new(version)
        FeatureSet(Feature(name, since) for name, since in version.features)
        manifest = msgspec.json.decode(sealed.backup, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _damaged(str(error)) from error
    _check(manifest)
    return manifest


def _check(manifest: Manifest) -> None:
    """Check that a manifest can be true. Raises Corrupt."""
    numbers = [segment.number for segment in manifest.segments]
    if not numbers or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise _damaged("its segments are not a row")
    if manifest.piece_bytes < 1 or len(manifest.log_id) != 32:
        raise _damaged("its fields cannot be true")
    if (numbers[-1], manifest.segments[-1].bytes) != (manifest.end.segment, manifest.end.offset):
        raise _damaged("it does not end with its last segment")
    for file in manifest.files:
        if not is_key(file.key):
            raise _damaged("a file is not below it")
        if len(file.sha256) != -(-file.bytes // manifest.piece_bytes):
            raise _damaged(f"{file.key} does not have a digest for each piece")
    if any(segment.bytes < HEAD_BYTES for segment in manifest.segments):
        raise _damaged("a segment has not even a head")


def _damaged(why: str) -> Corrupt:
    return Corrupt(f"{MANIFEST} is damaged: {why}. Use another backup.", code="backup_damaged", file=MANIFEST)


def _too_new(version: _Version) -> Corrupt:
    return Corrupt(
        f"the backup has format {version.format}, this program reads up to {FORMAT}: use Tenure {version.tenure} or "
        "later. Nothing was changed.",
        code="format_too_new",
        format=version.format,
    )
