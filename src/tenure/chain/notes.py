"""What a directory knows of its home: which log it is a copy of, how far it went, and which fences are its own.

The file is written whole and durably, under a temporary name first. Everything in it but the nonces is a hint: the
chain itself says what is true.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tenure.chain.link import Link
from tenure.chain.place import End, Place
from tenure.errors import Corrupt
from tenure.log.disk import Disk, write_whole
from tenure.log.opening import HOME_NOTES

__all__ = ["Notes", "load_notes", "save_notes"]

_UNFINISHED: Final = "home.tmp"
_NONCES_MAX: Final = 1_000


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """The notes of a directory; ``nonces`` are those of fences that it sent, the newest last."""

    format: int = 1
    log_id: str
    home: str
    epoch: int
    number: int
    digest: str
    end: tuple[int, int, int] = (0, 0, 0)
    #: The nonce of the epoch that the place lies in, and whether its leader has given it up.
    leader: str = ""
    is_released: bool = False
    nonces: tuple[str, ...] = ()

    @property
    def place(self) -> Place:
        return Place(self.epoch, self.number, bytes.fromhex(self.digest), End(*self.end))

    def after(self, link: Link, place: Place) -> Notes:
        """Return the notes after a link that was read or written, and the place after it."""
        return msgspec.structs.replace(
            self,
            epoch=place.epoch,
            number=place.number,
            digest=place.digest.hex(),
            end=tuple(place.end),
            leader=link.nonce.hex(),
            is_released=link.is_released,
        )

    def with_nonce(self, nonce: bytes) -> Notes:
        """Return the notes with one more fence of this directory."""
        return msgspec.structs.replace(self, nonces=(*self.nonces, nonce.hex())[-_NONCES_MAX:])

    @property
    def may_lead_at_once(self) -> bool:
        """Whether the epoch of the place was this directory's, whose lock is held now, or was given up."""
        return self.is_released or self.leader in self.nonces

    def owns(self, nonce: bytes) -> bool:
        """Return whether a fence is one of this directory's."""
        return nonce.hex() in self.nonces


def load_notes(disk: Disk) -> Notes | None:
    """Return the notes of a directory, None where it has none. Raises Corrupt, OSError."""
    if HOME_NOTES not in disk.listdir(""):
        return None
    file = disk.open(HOME_NOTES)
    try:
        data = disk.pread(file, disk.size(file), 0)
    finally:
        disk.close(file)
    try:
        notes = msgspec.json.decode(data, type=Notes)
        _ = notes.place
    except (msgspec.MsgspecError, ValueError) as error:
        raise Corrupt(
            f"{HOME_NOTES} cannot be read ({error}): fetch the log into an empty directory", file=HOME_NOTES
        ) from error
    return notes


def save_notes(disk: Disk, notes: Notes) -> None:
    """Replace the notes, durably. Raises OSError."""
    file = disk.create(_UNFINISHED)
    try:
        write_whole(disk, file, msgspec.json.encode(notes), offset=0)
        disk.sync(file)
    finally:
        disk.close(file)
    disk.rename(_UNFINISHED, HOME_NOTES)
    disk.sync_dir("")
