"""`Board`: what a worker process runs at each moment, in memory that it shares with its supervisor.

A process that is killed says nothing more. So it notes each job in shared memory as its handler starts, and removes it
as the handler ends: one store of 8 bytes each, no system call. The supervisor reads what is left there after the
process is dead, and the successor of the process reports it to the broker.

    head     state, exit code, length of the text, place of the first slot
    text     JSON: the process's node and its queues, each with its count of slots
    slots    one u64 for each job that may run at once: the seq that runs there, or 0

    EMPTY ──take()──► WORKING ──clear()──► EMPTY     the process ended well: there is nothing to report
                         │
                         └──bury(exit code)──► GONE ──take()──► WORKING of the successor, once it has reported

The state is written last, so that a process that is killed at any point leaves what was there before, or nothing.
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

import msgspec

__all__ = ["Board", "Places", "Record", "State", "private_places"]

_HEAD: Final = struct.Struct("=IiII")
_SLOT_BYTES: Final = 8


class State(IntEnum):
    """The state of a board."""

    EMPTY = 0
    WORKING = 1
    GONE = 2


class _Queue(msgspec.Struct, frozen=True):
    name: str
    slots: int


class _Text(msgspec.Struct, frozen=True):
    node: str
    queues: list[_Queue]


class Record(msgspec.Struct, frozen=True):
    """The content of a board: the node of its process, and the seqs that ran there, by queue."""

    state: State = State.EMPTY
    exit_code: int = 0
    node: str = ""
    running: dict[str, list[int]] = {}


class Places:
    """The slots of one queue. The caller holds no more places than there are slots.

    ``free`` places and ``slots`` are for a caller to whom each call is dear: it does by itself what `enter` and
    `leave` do.
    """

    __slots__ = ("free", "slots")

    def __init__(self, slots: memoryview[int] | array[int], first: int, count: int) -> None:
        self.slots = slots
        self.free = list(range(first, first + count))

    def enter(self, seq: int) -> int:
        """Note that a job starts, and return its place; seq 0 takes a place without a note."""
        place = self.free.pop()
        self.slots[place] = seq
        return place

    def note(self, place: int, seq: int) -> None:
        """Note that the job of a place has started."""
        self.slots[place] = seq

    def leave(self, place: int) -> None:
        """Note that the job has ended."""
        self.slots[place] = 0
        self.free.append(place)


def private_places(count: int) -> Places:
    """Return places that no other process reads."""
    return Places(array("Q", bytes(count * _SLOT_BYTES)), 0, count)


class Board:
    """The board behind a file descriptor. The supervisor makes it and reads it; one process at a time takes it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def make(cls, name: str) -> Board:
        """Return an empty board in memory of its own. Raises OSError where there is none."""
        return cls(os.memfd_create(name, os.MFD_CLOEXEC))

    def close(self) -> None:
        """Close the descriptor; a process that has taken the board keeps it."""
        os.close(self.fd)

    # Read

    def read(self) -> Record:
        """Return what is on the board; an empty record where it was never taken or was being taken, and where the dead
        process has destroyed it: it lies in that one's memory.
        """
        whole = os.pread(self.fd, os.fstat(self.fd).st_size, 0)
        try:
            state, exit_code, text_bytes, slots_at = _HEAD.unpack_from(whole)
            if state == State.EMPTY:
                return Record()
            text = msgspec.json.decode(whole[_HEAD.size : _HEAD.size + text_bytes], type=_Text)
            slots = array("Q", whole[slots_at:])
            return Record(State(state), exit_code, text.node, _running(text.queues, slots))
        except (struct.error, msgspec.MsgspecError, ValueError):
            return Record()

    # Write

    def bury(self, exit_code: int) -> Record | None:
        """Mark the process as gone and return what it left; None where it was not working, and nothing changes."""
        record = self.read()
        if record.state is not State.WORKING:
            return None
        os.pwrite(self.fd, _HEAD.pack(State.GONE, exit_code, *self._lengths()), 0)
        return record

    def take(self, node: str, slots: Mapping[str, int]) -> dict[str, Places]:
        """Replace what is on the board, and return the places of each queue, which has so many slots."""
        os.ftruncate(self.fd, 0)  # what is added to it below is zero
        text = msgspec.json.encode(_Text(node, [_Queue(name, count) for name, count in slots.items()]))
        count = sum(slots.values())
        slots_at = -(-(_HEAD.size + len(text)) // _SLOT_BYTES) * _SLOT_BYTES
        os.ftruncate(self.fd, slots_at + max(1, count) * _SLOT_BYTES)
        os.pwrite(self.fd, text, _HEAD.size)
        shared = memoryview(mmap.mmap(self.fd, 0))
        os.pwrite(self.fd, _HEAD.pack(State.WORKING, 0, len(text), slots_at), 0)
        return _places(shared[slots_at:].cast("Q"), slots)

    def clear(self) -> None:
        """Leave nothing to report."""
        os.pwrite(self.fd, _HEAD.pack(State.EMPTY, 0, 0, 0), 0)

    def _lengths(self) -> tuple[int, int]:
        _, _, text_bytes, slots_at = _HEAD.unpack(os.pread(self.fd, _HEAD.size, 0))
        return text_bytes, slots_at


def _running(queues: Sequence[_Queue], slots: Sequence[int]) -> dict[str, list[int]]:
    running: dict[str, list[int]] = {}
    first = 0
    for queue in queues:
        seqs = sorted(seq for seq in slots[first : first + queue.slots] if seq)
        if seqs:
            running[queue.name] = seqs
        first += queue.slots
    return running


def _places(shared: memoryview[int], slots: Mapping[str, int]) -> dict[str, Places]:
    places: dict[str, Places] = {}
    first = 0
    for name, count in slots.items():
        places[name] = Places(shared, first, count)
        first += count
    return places
