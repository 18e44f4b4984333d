"""The log on a disk: append to memory, write at once, sync together, fail for good.

``append`` only charges room and remembers; headers and checksums are built in ``write``, in one loop and one pwrite
for the whole batch. Room is charged against the allocated segment, so a full disk is met before anything happened
(fault 12); part of each segment is kept for urgent appends, and a little for the log's own frames, because dropping a
segment has to be logged too.

A write or sync that fails is never tried again (fault 13): the kernel may have thrown the pages away and would report
success the second time. ``failed`` is set, appends are refused, reads go on.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NoReturn

from tenure.errors import Closed, Indeterminate, Invalid, Overloaded, TenureError
from tenure.log.disk import Disk, File, write_whole
from tenure.log.frame import HEADER_BYTES, KIND_DROPPED, KIND_EPOCH, KIND_SEAL, encode_batch
from tenure.log.home import Entry, Frame, Position, SegmentInfo, Sync, UnknownPosition
from tenure.log.opening import NO_ROOM, cannot, check_declared, clear_leftovers, load_or_create, no_room, repair
from tenure.log.reader import FrameReader, SegmentFiles
from tenure.log.recovery import RecoveryReport, Scan, locate
from tenure.log.segment import HEAD_BYTES, SEGMENTS, SPARE, Head, prepare, segment_name
from tenure.log.syncing import FileSync, SyncGate

__all__ = ["SEGMENT_BYTES", "FileLog"]

SEGMENT_BYTES = 64 << 20
HANDLES_MAX = 64
_OFFSET_MAX = (1 << 32) - 1
_OWN_BYTES_MAX = 4096


class FileLog:
    """A :class:`~tenure.log.home.Log` in segment files on a :class:`~tenure.log.disk.Disk`."""

    def __init__(
        self,
        disk: Disk,
        heads: list[Head],
        *,
        segment_bytes: int,
        reserve_bytes: int,
        handles_max: int,
    ) -> None:
        self.epoch = 0
        self.pending_batch = self.written_batch = self.synced_batch = 0
        self.failed: TenureError | None = None
        self.preamble: Callable[[], Sequence[Entry]] | None = None
        #: What the recovery found; None until the first replay is exhausted.
        self.report: RecoveryReport | None = None
        self._disk = disk
        self._heads = heads
        self._salts = {head.number: head.salt for head in heads}
        self._segment_bytes, self._reserve_bytes = segment_bytes, reserve_bytes
        self._own_bytes = min(_OWN_BYTES_MAX, segment_bytes // 16)
        self._files = SegmentFiles(disk, handles_max=handles_max)
        self._reader = FrameReader(disk, self._files)
        self._gate = SyncGate(disk)
        self._closed = False
        self._dropped = 0
        #: Where the last seal ends: while the log ends there, it needs no other.
        self._sealed_at = -1
        # The segment being written. An append fits below _limit; -1 sends every append to the slow path.
        self._file: File = -1
        self._base = self._salt = 0
        self._end = self._written_end = self._last_offset = self._last_crc = 0
        self._capacity = 0
        self._limit = -1
        self._pending: dict[int, Entry] = {}

    @classmethod
    def open(
        cls,
        disk: Disk,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        reserve_bytes: int | None = None,
        handles_max: int = HANDLES_MAX,
        log_id: bytes | None = None,
        epoch: int = 0,
    ) -> FileLog:
        """Take the directory; :meth:`replay` must be exhausted before the first append.

        ``reserve_bytes`` of each segment are kept for urgent appends (a sixteenth unless told). ``log_id`` and
        ``epoch`` are for a new directory only: 16 bytes that tell logs apart, and the epoch it continues. Raises
        Conflict where another process holds the directory, Corrupt, Overloaded on a full disk, Closed where it cannot
        be written.
        """
        reserve = segment_bytes // 16 if reserve_bytes is None else reserve_bytes
        if not (1024 <= segment_bytes <= _OFFSET_MAX and 0 <= reserve <= segment_bytes // 2):
            raise Invalid("segment_bytes must lie in 1024..4294967295 and reserve_bytes be at most half of it")
        try:
            disk.lock()
            try:
                new_id = secrets.token_bytes(16) if log_id is None else log_id
                heads = load_or_create(disk, segment_bytes=segment_bytes, log_id=new_id, epoch=epoch)
            except BaseException:
                disk.unlock()
                raise
        except OSError as error:
            raise cannot("opening the log", error) from error
        return cls(
            disk,
            heads,
            segment_bytes=segment_bytes,
            reserve_bytes=reserve,
            handles_max=handles_max,
        )

    # Writing.

    def append(self, entries: Sequence[Entry], *, urgent: bool = False) -> list[int]:
        need = HEADER_BYTES * len(entries)
        for entry in entries:
            need += len(entry[2])
        if self._end + need > self._limit:
            self._make_room(need, urgent=urgent)
        at = self._base + self._end
        self._end += need
        locations = []
        for entry in entries:
            locations.append(at)
            self._pending[at] = entry
            at += HEADER_BYTES + len(entry[2])
        return locations

    def write(self) -> int:
        entries = list(self._pending.values())
        if not entries:
            return self.written_batch
        if self.failed is not None or self._closed:
            raise self._refusal()
        batch = self.pending_batch
        data, crc = encode_batch(entries, self._salt, epoch=self.epoch, batch=batch, synced_batch=self.synced_batch)
        try:
            if self._disk.pwrite(self._file, data, self._written_end) != len(data):
                write_whole(self._disk, self._file, data, offset=self._written_end)
        except OSError as error:
            self._fail("writing", error)
        self._last_offset, self._last_crc = self._end - HEADER_BYTES - len(entries[-1][2]), crc
        self._written_end = self._end
        self.written_batch, self.pending_batch = batch, batch + 1
        self._pending = {}
        return batch

    def begin_sync(self) -> Sync:
        self._check_ready()
        segment = self._heads[-1].number
        self._files.pin(segment)
        file = self._file if self.written_batch > self.synced_batch else None
        return self._gate.begin(file, segment=segment, batch=self.written_batch)

    def end_sync(self, sync: Sync) -> int:
        assert isinstance(sync, FileSync)
        self._gate.end(sync)
        self._files.unpin(sync.segment)
        if self.failed is not None:
            raise self.failed
        if sync.error is not None:
            self._fail("syncing", sync.error)
        self.synced_batch = max(self.synced_batch, sync.batch)
        return self.synced_batch

    def sync(self) -> int:
        self._check_ready()
        self.write()
        if self.synced_batch < self.written_batch:
            self._sync_now()
        return self.synced_batch

    def seal(self) -> None:
        self.sync()
        if not self._sealed():
            self._append_seal()
            self.sync()

    def witness(self) -> bool:
        self._check_ready()
        if self._pending or self.synced_batch < self.written_batch or self._sealed():
            return False
        with suppress(Overloaded):
            self._append_seal()
            return True
        return False

    # Reading.

    def read(self, location: int) -> tuple[int, int, bytes]:
        entry = self._pending.get(location)
        return entry if entry is not None else self._reader.read(location, self._salts.get(location >> 32))

    def contains(self, position: Position) -> bool:
        try:
            locate(self._disk, self._heads, position)
        except UnknownPosition:
            return False
        return True

    def replay(self, after: Position | None = None) -> Iterator[Frame]:
        if self._closed or (self.failed is not None and self._file == -1):
            raise self._refusal()
        if self._file != -1:
            return Scan(self._disk, list(self._heads), after=after, stop=self.position()).frames()
        return self._recover(Scan(self._disk, self._heads, after=after))

    def position(self) -> Position:
        batch = self.written_batch + 1
        number = self._heads[-1].number
        return Position(number, self._written_end, batch, self._last_offset, self._last_crc, self._dropped)

    def segments(self) -> list[SegmentInfo]:
        heads = self._heads
        ends = [head.previous_end for head in heads[1:]] + [self._written_end]
        return [SegmentInfo(head.number, end, head.first_batch) for head, end in zip(heads, ends, strict=True)]

    # Its life.

    def drop(self, segment: int) -> None:
        self._check_ready()
        if len(self._heads) == 1 or segment != self._heads[0].number:
            raise Invalid(f"segment {segment} cannot be dropped: only the oldest can, and never the one being written")
        self._append_own(KIND_DROPPED, segment.to_bytes(8, "little"))
        self.sync()
        self._dropped = segment
        del self._heads[0], self._salts[segment]
        self._files.forget(segment)
        self._reader.drop(segment)
        try:
            self._disk.unlink(segment_name(segment))
            self._disk.sync_dir(SEGMENTS)
        except OSError as error:
            self._fail("removing a dropped segment", error)

    def close(self) -> None:
        if self._closed:
            return
        try:
            if self._file != -1 and self.failed is None:
                with suppress(Overloaded):  # No room for a seal: what was synced is durable all the same.
                    self.seal()
        finally:
            self._closed, self._limit = True, -1
            with self._gate.lock:
                self._files.close()
            self._disk.unlock()

    # How it is done.

    def _recover(self, scan: Scan) -> Iterator[Frame]:
        """Replay, then make the log ready: repair the tail, log this opening's epoch, clear what was dropped."""
        yield from scan.frames()
        end = scan.end
        check_declared(self._heads, end.dropped)
        try:
            file, capacity = repair(self._disk, scan, segment_bytes=self._segment_bytes)
        except OSError as error:
            raise cannot("repairing the end of the log", error) from error
        self.pending_batch = end.batch
        self.written_batch = self.synced_batch = end.batch - 1
        self.epoch = scan.epoch + 1
        self._last_offset, self._last_crc, self._dropped = end.last_offset, end.last_crc, end.dropped
        self._use(self._heads[-1], file, end=end.offset, capacity=capacity)
        try:
            self._append_own(KIND_EPOCH, b"")
            self.write()
            self._sync_now()
            unlinked = clear_leftovers(self._disk, end.dropped)
        except BaseException as error:
            self._file = self._limit = -1
            if isinstance(error, OSError):
                self._fail("clearing dropped segments", error)
            raise
        for number in unlinked:
            self._files.forget(number)
            self._salts.pop(number, None)
        self._heads = [head for head in self._heads if head.number > end.dropped]
        torn = max(0, scan.torn_end - end.offset)
        name = segment_name(end.segment) if torn else None
        self.report = RecoveryReport(self.epoch, scan.batches, name, end.offset, torn, unlinked)

    def _use(self, head: Head, file: File, *, end: int, capacity: int) -> None:
        """Write to this segment from now on."""
        self._files.adopt(head.number, file)
        self._files.pin(head.number)
        self._file, self._base, self._salt = file, head.number << 32, head.salt
        self._end = self._written_end = end
        self._capacity = capacity
        self._limit = capacity - self._own_bytes - self._reserve_bytes
        self._pending = {}

    def _make_room(self, need: int, *, urgent: bool) -> None:
        """Let ``need`` bytes fit: by rolling, else for urgent ones from the reserve. Raises Overloaded, Closed."""
        self._check_ready()
        try:
            self._roll(need)
        except Overloaded:
            if not urgent or self._end + need > self._capacity - self._own_bytes:
                raise
        except Indeterminate as error:
            raise self._refusal() from error

    def _append_own(self, kind: int, body: bytes) -> None:
        """Append a frame of the log's own; it may use whatever room is left."""
        need = HEADER_BYTES + len(body)
        if self._end + need > self._capacity:
            self._roll(need)
        self._join((kind, 0, body))

    def _append_seal(self) -> None:
        self._append_own(KIND_SEAL, b"")
        self._sealed_at = self._base + self._end

    def _sealed(self) -> bool:
        return self._base + self._written_end == self._sealed_at

    def _join(self, entry: Entry) -> None:
        self._pending[self._base + self._end] = entry
        self._end += HEADER_BYTES + len(entry[2])

    def _roll(self, need: int) -> None:
        """Go on in a new segment. Everything before it is synced first, so its existence is a witness."""
        preamble = () if self.preamble is None else self.preamble()
        need += sum(HEADER_BYTES + len(body) for _, _, body in preamble)
        size = max(self._segment_bytes, HEAD_BYTES + need + self._reserve_bytes + self._own_bytes)
        if size > _OFFSET_MAX:
            raise Invalid(f"{need} bytes in one append are more than a segment can hold")
        file = self._claim_room(size)
        try:
            self.write()
            self._sync_now()
            before = self._heads[-1]
            head = Head(before.number + 1, self.pending_batch, before.log_id, self.epoch, self._end, self._last_crc)
            self._publish(file, head)
        except BaseException:
            self._disk.close(file)
            raise
        old, old_end = self._file, self._end
        self._last_offset, self._last_crc = 0, head.crc
        self._heads.append(head)
        self._salts[head.number] = head.salt
        self._use(head, file, end=HEAD_BYTES, capacity=size)
        for entry in preamble:
            self._join(entry)
        with suppress(OSError):  # Only room is lost: the head of the next segment says where this one ends.
            self._disk.truncate(old, old_end)
        self._files.unpin(before.number)

    def _claim_room(self, size: int) -> File:
        try:
            return prepare(self._disk, size)
        except OSError as error:
            self._no_room(error)

    def _publish(self, file: File, head: Head) -> None:
        try:
            write_whole(self._disk, file, head.pack(), offset=0)
        except OSError as error:
            self._no_room(error)
        self._sync_now(file)
        try:
            self._disk.rename(SPARE, segment_name(head.number))
        except OSError as error:
            self._no_room(error)
        try:
            self._disk.sync_dir(SEGMENTS)
        except OSError as error:
            self._fail("syncing the directory", error)

    def _no_room(self, error: OSError) -> NoReturn:
        """Nothing has changed: tell a lack of room, which may pass, from a broken disk."""
        if error.errno not in NO_ROOM:
            self._fail("making a segment", error)
        with suppress(OSError):
            self._disk.unlink(SPARE)
        raise no_room(error) from error

    def _sync_now(self, file: File | None = None) -> None:
        try:
            self._gate.sync_now(self._file if file is None else file)
        except OSError as error:
            self._fail("syncing", error)
        if file is None:
            self.synced_batch = self.written_batch

    def _fail(self, what: str, error: OSError) -> NoReturn:
        """Turn read-only for good. Raises what those who wait for durability are told."""
        if self.failed is None:
            why = error.strerror or error
            message = f"{what} failed: {why}. Whether the last batches are durable is unknown; the log is read-only."
            self.failed = Indeterminate(message, errno=error.errno)
        self._limit = -1
        raise self.failed from error

    def _check_ready(self) -> None:
        if self._closed or self.failed is not None or self._file == -1:
            raise self._refusal()

    def _refusal(self) -> Closed:
        if self._closed:
            return Closed("the log is closed: open it again", code="closed")
        if self.failed is not None:
            return Closed(f"Nothing is taken in any more: {self.failed.message}")
        return Closed("the log has not been replayed yet: exhaust replay() first", code="not_replayed")
