"""The log that is backed up, held as it is at one moment, while a broker may write and trim it.

What is held ends at a batch boundary and contains everything that was written before :meth:`Source.hold` was called:
also what lies in a segment that is not published yet, because a job of class ``disk`` is acknowledged there. Bytes
before that end never change: a segment is only appended to, and a repair after a crash writes the same bytes again.

Segments are dropped oldest first, and a file that was unlinked can be read as long as it is open. So the oldest few
are held open, and as each is released the next one is opened.
"""

from __future__ import annotations

from contextlib import suppress

from tenure.errors import Corrupt, NotFound, Overloaded
from tenure.log.disk import Disk, File
from tenure.log.features import FEATURES, NO_FEATURES
from tenure.log.interface import Position, UnknownPosition
from tenure.log.opening import check_declared
from tenure.log.recovery import Scan, locate
from tenure.log.segment import HEAD_BYTES, Head, find_features, list_heads, read_head, segment_name, segment_numbers
from tenure.log.spare_segments import unpublished_name
from tenure.log.unpublished import find_unpublished

__all__ = ["Source"]

_LOOKS_MAX = 5
_ROLLS_MAX = 64


class Source:
    """The segments of a log in use, oldest first, up to ``end``; a `Files` for a scan. Close it in the end."""

    def __init__(self, disk: Disk, *, held_max: int) -> None:
        self._disk = disk
        self._held_max = held_max
        self._held: dict[str, File] = {}
        self._next = 0
        self.heads: list[Head] = []
        #: Where the backup ends, after the last batch that is whole, and the epoch of that batch.
        self.end = Position(0, 0, 0)
        self.epoch = 0
        self.features = NO_FEATURES

    def hold(self) -> None:
        """Hold the log as it is now. Raises NotFound without a log, Corrupt for a damaged one, OSError."""
        for _ in range(_LOOKS_MAX):
            self.close()
            try:
                self._look()
                return
            except FileNotFoundError:
                continue  # a segment was dropped or published between two calls
        raise Overloaded("the log changes faster than it can be read: run it again, or stop the server first")

    def _look(self) -> None:
        self.heads = self._chain()
        self._next = 0
        self._hold_on()
        self._open_held(self.heads[-1])
        self.end, self.epoch = self._find_end()
        # Only the newest segment can be without a frame.
        newest = [(segment_name(head.number), head) for head in self.heads[-2:]]
        self.features = find_features(self, newest, known=FEATURES) or NO_FEATURES

    def _find_end(self) -> tuple[Position, int]:
        """Return where the last whole batch ends, and its epoch. Raises Corrupt where damage follows it.

        What the broker wrote between the read of a chunk and the look behind it looks like damage: a batch that is
        not whole, and a later one that says it was synced. A second look from there on finds it whole.
        """
        scan = Scan(self, self.heads[-1:])
        try:
            _exhaust(scan)
        except Corrupt:
            again = Scan(self, self.heads[-1:], after=scan.end)
            with suppress(Corrupt):
                _exhaust(again)
            if again.end == scan.end:
                raise
        return scan.end, scan.epoch

    def _chain(self) -> list[Head]:
        heads = list_heads(self._disk)
        if not heads:
            raise NotFound("there is no log here: name the directory that was given to `tenure serve --data`")
        for _ in range(_ROLLS_MAX):
            after = self._head_after(heads[-1])
            if after is None:
                break
            heads.append(after)
        return heads

    def _head_after(self, before: Head) -> Head | None:
        """Return the head of the segment after ``before``, published or not; None where the log ends.

        Between two looks it may get its name, so each name is looked at twice.
        """
        number = before.number + 1
        for _ in range(2):
            published = segment_numbers(self._disk)
            if number in published:
                return read_head(self._disk, number)[0]
            name = segment_name(before.number) if before.number in published else unpublished_name(before.number)
            found = find_unpublished(self._disk, before, name)
            if found is not None:
                return found.head
        return None

    def _hold_on(self) -> None:
        """Open the segments that come next, as many as may be held."""
        while self._next < len(self.heads) and len(self._held) < self._held_max:
            self._open_held(self.heads[self._next])
            self._next += 1

    def _open_held(self, head: Head) -> None:
        name = segment_name(head.number)
        if name in self._held:
            return
        for each in (name, unpublished_name(head.number)):
            with suppress(FileNotFoundError):
                self._held[name] = self._disk.open(each)
                return
        self._held[name] = self._disk.open(name)  # it got its name between the two

    # What is done with the segments, in their order

    def size(self, file: File) -> int:
        return self._disk.size(file)

    def used_bytes(self, index: int) -> int:
        """Return where the frames of a segment end."""
        return self.heads[index + 1].previous_end if index + 1 < len(self.heads) else self.end.offset

    def check(self, index: int) -> None:
        """Read every frame of a segment. Raises Corrupt where one is damaged, Overloaded where it was dropped."""
        head, after = self.heads[index], self.heads[index + 1 : index + 2]
        if not after:
            return  # the last one was read when the end was looked for
        stop = Position(after[0].number, HEAD_BYTES, after[0].first_batch, 0, after[0].crc)
        scan = Scan(self, [head, *after], stop=stop)
        _exhaust(scan)
        self.end = self.end._replace(dropped=max(self.end.dropped, scan.end.dropped))

    def check_declared(self) -> None:
        """Check, after all segments were, that those before the oldest were dropped on purpose. Raises Corrupt."""
        check_declared(self.heads, self.end.dropped)

    def release(self, index: int) -> None:
        """Let go of a segment, and hold the next one instead."""
        file = self._held.pop(segment_name(self.heads[index].number), None)
        if file is not None:
            self._disk.close(file)
        try:
            self._hold_on()
        except FileNotFoundError as error:
            raise _dropped(error) from error

    def goes_through(self, position: Position) -> bool:
        """Return whether the log went through a position that lies at or before the end."""
        if position.batch > self.end.batch:
            return False
        try:
            locate(self, self.heads, position)
        except (UnknownPosition, Overloaded):
            return False
        return True

    # What a scan needs of a disk

    def open(self, name: str) -> File:
        held = self._held.get(name)
        if held is not None:
            return held
        try:
            return self._disk.open(name)
        except FileNotFoundError as error:
            raise _dropped(error) from error

    def close(self, file: File | None = None) -> None:
        """Close a file that a scan opened and that is not held; without one, close those that are held."""
        if file is None:
            while self._held:
                self._disk.close(self._held.popitem()[1])
        elif file not in self._held.values():
            self._disk.close(file)

    def pread(self, file: File, count: int, offset: int) -> bytes:
        return self._disk.pread(file, count, offset)


def _exhaust(scan: Scan) -> None:
    for _ in scan.frames():
        pass


def _dropped(error: FileNotFoundError) -> Overloaded:
    return Overloaded(f"{error.filename} was dropped before it could be copied: run the backup again, at a higher rate")
