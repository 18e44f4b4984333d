"""What a directory knows of its home: which log it is a copy of, how far it went, and which fences are its own.

The file is written whole and durably, under a temporary name first. Everything in it but the nonces is a hint: the
chain itself says what is true.
"""

from __future__ import annotations

import secrets
from threading import Lock
from typing import Final

import msgspec

from tenure.chain.home import HomeFacts
from tenure.chain.place import Place, Step
from tenure.errors import Corrupt
from tenure.log.disk import Disk, write_whole
from tenure.log.opening import HOME_NOTES

__all__ = ["Notes", "NotesFile", "begin_notes", "load_notes", "save_notes"]

_UNFINISHED: Final = "home.tmp"
_DIRECTORY_BYTES: Final = 16
_NONCES_MAX: Final = 1_000
_BEGUN_MAX: Final = 256


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """The notes of a directory; ``nonces`` are those of fences that it sent, the newest last."""

    format: int = 1
    log_id: str
    home: str
    #: What this directory is known by in the fences it sends.
    directory: str
    place: Place
    #: The nonce of the epoch that the place lies in, its leader's directory, and whether that has given it up.
    leader: str = ""
    leader_directory: str = ""
    is_released: bool = False
    #: The nonce of the newest link that carried data or a beat: its writer may hold a grant.
    granted: str = ""
    #: Where this directory was when it last began an epoch: a copy of it is elsewhere.
    whereabouts: str = ""
    nonces: tuple[str, ...] = ()
    #: The place before the link that began a segment, by the segment's number.
    begun: dict[int, Place] = {}
    #: The number of the fence of each closed epoch whose links are still there.
    closed: dict[int, int] = {}

    def after(self, step: Step) -> Notes:
        """Return the notes after a link that was read or written."""
        link, begun, closed = step.link, self.begun, self.closed
        started = {run.segment: step.before for run in link.runs if run.offset == 0}
        if started:
            begun = dict(list({**begun, **started}.items())[-_BEGUN_MAX:])
        if link.is_fence:
            closed = {**closed, step.before.epoch: step.before.number}
        return msgspec.structs.replace(
            self,
            place=step.after,
            leader=link.nonce.hex(),
            leader_directory=link.directory.hex(),
            granted=self.granted if link.is_fence else link.nonce.hex(),
            is_released=link.is_released,
            begun=begun,
            closed=closed,
        )

    def with_nonce(self, nonce: bytes, *, whereabouts: str) -> Notes:
        """Return the notes with one more fence of this directory, which is there now."""
        nonces = (*self.nonces, nonce.hex())[-_NONCES_MAX:]
        return msgspec.structs.replace(self, nonces=nonces, whereabouts=whereabouts)

    def without_closed(self, epochs: set[int]) -> Notes:
        """Return the notes without closed epochs whose links are gone."""
        return msgspec.structs.replace(self, closed={e: n for e, n in self.closed.items() if e not in epochs})

    @property
    def may_lead_at_once(self) -> bool:
        """Whether the epoch of the place was this directory's, whose lock is held now, or was given up."""
        return self.is_released or self.leader in self.nonces

    def was_led_at(self, whereabouts: str) -> bool:
        """Return whether this directory, where it is now, wrote the newest link of all and the newest one with a grant.

        Its lock is held now, so the process that wrote them is dead, and the grant with it. A copy of the directory has
        the nonces, but is elsewhere. A fence alone is not enough: the epoch before it may have a leader that lives.
        """
        is_own = self.leader in self.nonces and (not self.granted or self.granted in self.nonces)
        return is_own and self.whereabouts == whereabouts

    def owns(self, nonce: bytes) -> bool:
        """Return whether a fence is one of this directory's."""
        return nonce.hex() in self.nonces


def begin_notes(facts: HomeFacts, home: str) -> Notes:
    """Return the notes of a directory that has read nothing of its home yet."""
    directory = secrets.token_hex(_DIRECTORY_BYTES)
    return Notes(log_id=facts.log_id, home=home, directory=directory, place=facts.beginning)


class NotesFile:
    """The notes of a leader, changed by its syncs and by its upkeep, which run in different threads."""

    def __init__(self, disk: Disk, notes: Notes) -> None:
        self._disk = disk
        self._lock = Lock()
        self.notes = notes

    def pass_step(self, step: Step) -> None:
        """Go past a link of this leader, in memory."""
        with self._lock:
            self.notes = self.notes.after(step)

    def add_nonce(self, nonce: bytes) -> None:
        """Note a fence before it is sent, durably. Raises OSError."""
        with self._lock:
            self.notes = self.notes.with_nonce(nonce, whereabouts=self.notes.whereabouts)
            save_notes(self._disk, self.notes)

    def forget_closed(self, epochs: set[int]) -> None:
        """Forget closed epochs whose links were deleted, in memory."""
        with self._lock:
            self.notes = self.notes.without_closed(epochs)

    def save(self) -> None:
        """Write the notes, durably. Raises OSError."""
        with self._lock:
            save_notes(self._disk, self.notes)


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
        return msgspec.json.decode(data, type=Notes)
    except msgspec.MsgspecError as error:
        message = f"{HOME_NOTES} cannot be read ({error}): fetch the log into an empty directory"
        raise Corrupt(message, file=HOME_NOTES) from error


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
