"""Open a log for appends: create the first segment, repair the torn tail of the last one, clear leftovers.

Each step can be cut short at any call and simply runs again at the next opening (fault 20): nothing is removed before
what declares it is durable, and a torn tail is zeroed and synced before anything is written after it.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress

from tenure.errors import Closed, Conflict, Corrupt, Overloaded, TenureError
from tenure.log import checkpoint
from tenure.log.disk import Disk, File, write_whole
from tenure.log.features import FEATURES, Feature, FeatureSet
from tenure.log.frame import CHUNK_BYTES
from tenure.log.recovery import Scan
from tenure.log.segment import (
    SEGMENTS,
    SPARE,
    Head,
    find_features,
    list_heads,
    prepare,
    read_head,
    segment_name,
    segment_numbers,
)
from tenure.log.unpublished import Unpublished, list_unpublished, publish_next

__all__ = [
    "HOME_NOTES",
    "NO_ROOM",
    "check_declared",
    "check_no_home",
    "clear_leftovers",
    "load_or_create",
    "no_room_error",
    "opening_error",
    "peek_features",
    "publish",
    "repair",
]

#: Errors of making room that leave everything as it was, and that may pass.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})

_LOOKS_MAX = 5


HOME_NOTES = "home.json"
"""The file of a directory that is a copy of a log whose home is elsewhere."""


def check_no_home(disk: Disk) -> None:
    """Raise Conflict for a directory whose log has a home: opened alone, it would go another way than its home."""
    if HOME_NOTES in disk.listdir(""):
        raise Conflict(
            "the log of this directory lives in a store: serve it with --home, or make a log of its own of it with "
            "`tenure home fetch`",
            code="has_home",
        )


def no_room_error(error: OSError) -> Overloaded:
    """Return the error for an append that found no room and changed nothing."""
    code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else None
    return Overloaded(f"no room for another segment: {error.strerror}. Nothing was changed.", code=code)


def opening_error(what: str, error: OSError) -> TenureError:
    """Return the error for a log that could not be opened."""
    if error.errno in NO_ROOM:
        return no_room_error(error)
    return Closed(f"{what} failed: {error.strerror or error}. Nothing was acknowledged.", code="unwritable")


def peek_features(disk: Disk, *, known: Sequence[Feature] = FEATURES) -> FeatureSet | None:
    """Return the features of a log that is not locked, or None where there is no log; changes nothing.

    Raises Corrupt for a feature that is not ``known``, OSError.
    """
    for _ in range(_LOOKS_MAX):
        numbers = segment_numbers(disk)
        if not numbers:
            return None
        with suppress(FileNotFoundError):  # dropped between two calls: look again
            # Only the newest segment can be without a frame.
            heads = [read_head(disk, number)[0] for number in numbers[-2:]]
            return _features_of(disk, heads, list_unpublished(disk, heads[-1]), known=known)
    return None


def _features_of(
    disk: Disk, heads: Sequence[Head], unpublished: Sequence[Unpublished], *, known: Sequence[Feature]
) -> FeatureSet:
    """Return the features of a log; all that are known where nothing was ever written to it. Raises Corrupt."""
    files = [(segment_name(head.number), head) for head in heads] + [(each.name, each.head) for each in unpublished]
    features = find_features(disk, files, known=known)
    if features is None:
        features = FeatureSet(known=known)
        return features.all_on() if files[-1][1].number == 1 else features
    return features


def load_or_create(
    disk: Disk, *, segment_bytes: int, log_id: bytes, epoch: int, known: Sequence[Feature]
) -> tuple[list[Head], FeatureSet]:
    """Return the heads of the segments, oldest first, and the features of the log; create the first segment where
    there is none.

    A feature that is not ``known`` raises Corrupt before anything is changed. Checkpoints without segments mean that
    the segments were removed: that is not a new log, and raises Corrupt (fault 9).
    """
    heads = list_heads(disk, known=known)
    if heads:
        unpublished = list_unpublished(disk, heads[-1])
        features = _features_of(disk, heads, unpublished, known=known)
        for each in unpublished:
            publish_next(disk, heads[-1], each)
            heads.append(each.head)
        return heads, features
    if checkpoint.exists(disk):
        raise Corrupt("there are checkpoints but no segments: the log itself is missing", file=SEGMENTS)
    head = Head(1, 1, log_id, epoch, 0, 0)
    disk.mkdir(SEGMENTS)
    disk.sync_dir("")
    file = prepare(disk, segment_bytes)
    try:
        publish(disk, file, head)
    finally:
        disk.close(file)
    return [head], FeatureSet(known=known).all_on()


def publish(disk: Disk, file: File, head: Head) -> None:
    """Turn the spare file into a segment, durably."""
    write_whole(disk, file, head.pack(), offset=0)
    disk.sync(file)
    disk.rename(SPARE, segment_name(head.number))
    disk.sync_dir(SEGMENTS)


def check_declared(heads: list[Head], dropped: int) -> None:
    """Raise Corrupt for a log whose oldest segments are gone although no frame declares them dropped (fault 10)."""
    first = heads[0].number
    if first > dropped + 1:
        name = segment_name(first - 1)
        message = f"{name} is missing and was never declared dropped. Restore it, or salvage the directory."
        raise Corrupt(message, file=name, segment=first - 1)


def repair(disk: Disk, scan: Scan, *, segment_bytes: int) -> tuple[File, int]:
    """Make the last segment ready for appending, durably; return its file and its size.

    The torn tail is zeroed. What no frame says was synced is written once more: after a failed sync of the process
    before, those pages may look clean in memory although they never reached the disk, and a sync alone would not save
    them. The names are synced too: that process may have been killed between a rename and the sync of its directory.
    """
    file = disk.open(segment_name(scan.end.segment), write=True)
    try:
        offset = scan.unwitnessed_offset
        while offset < scan.end.offset:
            data = disk.pread(file, min(CHUNK_BYTES, scan.end.offset - offset), offset)
            write_whole(disk, file, data, offset=offset)
            offset += len(data)
        while offset < scan.torn_end:
            data = bytes(min(CHUNK_BYTES, scan.torn_end - offset))
            write_whole(disk, file, data, offset=offset)
            offset += len(data)
        try:
            disk.allocate(file, segment_bytes)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        disk.sync(file)
        disk.sync_dir(SEGMENTS)
        disk.sync_dir("")
        return file, disk.size(file)
    except BaseException:
        disk.close(file)
        raise


def clear_leftovers(disk: Disk, dropped: int) -> tuple[int, ...]:
    """Remove the segments that are declared dropped but still there, and an unfinished spare."""
    doomed = tuple(number for number in segment_numbers(disk) if number <= dropped)
    names = [segment_name(number) for number in doomed]
    if SPARE.rpartition("/")[2] in disk.listdir(SEGMENTS):
        names.append(SPARE)
    for name in names:
        disk.unlink(name)
    if names:
        disk.sync_dir(SEGMENTS)
    return doomed
