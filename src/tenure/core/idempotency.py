"""Which idempotency keys were used lately, and what they got: a window over log time, about 65 bytes a key.

A million keys as Python objects would cost 300 MB, so a key is 44 bytes in a block of rows, in the order of arrival,
and 8 bytes in an open-addressed table that leads to its row. Three decisions keep every step short:

- The hash is split over 4,096 small tables, each growing on its own: no step ever rehashes the whole window.
- Expiry moves the head past old rows and frees whole blocks; the tables are not touched. An entry that leads to a row
  no longer there is skipped, and swept out when its table is next rebuilt.
- Where the window was changed, a row can expire before an older one: ``get`` looks at the row's own time, and a hand
  that visits one block per ``expire`` frees such blocks behind the head.

Digests are all that is kept: 128 bits of the key, so that no two keys are ever taken for one, and 64 bits of the payload,
to notice a key used twice for different things.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from struct import Struct
from typing import Final, Self

import msgspec

from tenure.errors import Corrupt

__all__ = ["KEY_DIGEST_BYTES", "KeyEntry", "KeyWindow", "digest_key", "digest_payload"]

KEY_DIGEST_BYTES: Final = 16

_BLOCK_ROWS: Final = 512
_ROW: Final = Struct("<16sQIQ")  # key digest, first seq, count, payload digest; the expiry lies beside it
_ROW_BYTES: Final = _ROW.size
_SLOTS_MIN: Final = 8
# The hash, low bits first: 12 choose the table, 28 the slot to start from, 24 are kept in the slot to skip other keys
# without looking at their rows. The other 40 bits of a slot are the row's number plus one; 0 is an empty slot.
_TABLE_MASK: Final = (1 << 12) - 1
_START_SHIFT: Final = 12
_PRINT_SHIFT: Final = 40
_NUMBER_MASK: Final = (1 << 40) - 1


class KeyEntry(msgspec.Struct, frozen=True, gc=False):
    """What the append under a key got, a digest of what it sent, and the log time until which that is remembered."""

    first_seq: int
    count: int
    payload_digest: int
    expires_ms: int


def digest_key(key: str) -> bytes:
    """Return the 128 bits that stand for a key."""
    return blake2b(key.encode(), digest_size=KEY_DIGEST_BYTES).digest()


def digest_payload(*parts: bytes) -> int:
    """Return 64 bits that stand for these parts, in this order and with these borders."""
    state = blake2b(digest_size=8)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return int.from_bytes(state.digest(), "little")


class _Block:
    """Up to 512 rows; an expiry of 0 marks a row that a later one of the same key has replaced."""

    __slots__ = ("expires_ms", "rows")

    def __init__(self, rows: bytes = b"", expires_ms: tuple[int, ...] = ()) -> None:
        self.rows = bytearray(rows)
        self.expires_ms = array("Q", expires_ms)


class KeyWindow:
    """The keys of one topic. Time comes only from the callers, who give the log time of the event at hand."""

    __slots__ = ("_blocks", "_count", "_hand", "_head", "_next", "_tables")

    def __init__(self) -> None:
        self._clear()

    def __len__(self) -> int:
        """Return how many keys are held: exact after ``expire`` unless the window was changed, never too few."""
        return self._count

    def get(self, key: bytes, now_ms: int) -> KeyEntry | None:
        """Return what is remembered under a key digest at this log time; an entry is gone once its time has passed."""
        number = self._find(key)
        if number is None:
            return None
        block, index = self._blocks[number // _BLOCK_ROWS], number % _BLOCK_ROWS
        expires_ms = block.expires_ms[index]
        if expires_ms < now_ms:
            return None
        _, first_seq, count, payload_digest = _ROW.unpack_from(block.rows, index * _ROW_BYTES)
        return KeyEntry(first_seq, count, payload_digest, expires_ms)

    def put(self, key: bytes, *, first_seq: int, count: int, payload_digest: int, expires_ms: int) -> None:
        """Remember an append under a key digest, in place of what was remembered under it before."""
        old = self._find(key)
        if old is not None:
            self._blocks[old // _BLOCK_ROWS].expires_ms[old % _BLOCK_ROWS] = 0
            self._count -= 1
        number = self._next
        block = self._blocks.get(number // _BLOCK_ROWS)
        if block is None:
            block = self._blocks[number // _BLOCK_ROWS] = _Block()
        block.rows += _ROW.pack(key, first_seq, count, payload_digest)
        block.expires_ms.append(expires_ms)
        self._next = number + 1
        self._count += 1
        self._point(key, number)

    def expire(self, now_ms: int) -> int:
        """Forget what has passed by this log time; return how many keys. Costs what it forgets, and a constant."""
        before_count = self._count
        while self._head < self._next:
            block = self._blocks.get(self._head // _BLOCK_ROWS)
            if block is not None:
                expires_ms = block.expires_ms[self._head % _BLOCK_ROWS]
                if expires_ms >= now_ms:
                    break
                self._count -= expires_ms != 0
            self._step_head()
        if self._count == 0:
            self._clear()
        else:
            self._move_hand(now_ms)
        return before_count - self._count

    def dump(self, *, now_ms: int) -> bytes:
        """Return the keys alive at this log time, oldest first: windows that remember the same in the same order agree."""
        rows, times = bytearray(), bytearray()
        for block_number in sorted(self._blocks):
            block = self._blocks[block_number]
            skipped_count = max(self._head - block_number * _BLOCK_ROWS, 0)
            for index in range(skipped_count, len(block.expires_ms)):
                if block.expires_ms[index] >= max(now_ms, 1):
                    rows += block.rows[index * _ROW_BYTES : (index + 1) * _ROW_BYTES]
                    times += block.expires_ms[index].to_bytes(8, "little")
        return msgspec.msgpack.encode((bytes(rows), bytes(times)))

    @classmethod
    def load(cls, dumped: bytes) -> Self:
        """Return the window that ``dump`` wrote; raises Corrupt if it cannot have written this."""
        try:
            rows, times = msgspec.msgpack.decode(dumped, type=tuple[bytes, bytes])
        except msgspec.MsgspecError as error:
            raise Corrupt(f"idempotency keys cannot be read: {error}") from error
        if len(rows) % _ROW_BYTES or len(times) * _ROW_BYTES != len(rows) * 8:
            raise Corrupt(f"idempotency keys do not add up: {len(rows)} bytes of rows, {len(times)} of times")
        window = cls()
        expires_ms = Struct(f"<{len(times) // 8}Q").unpack(times)
        for first in range(0, len(expires_ms), _BLOCK_ROWS):
            last = first + _BLOCK_ROWS
            window._blocks[first // _BLOCK_ROWS] = _Block(
                rows[first * _ROW_BYTES : last * _ROW_BYTES], expires_ms[first:last]
            )
        window._next = window._count = len(expires_ms)
        for number in range(window._next):
            window._point(rows[number * _ROW_BYTES : number * _ROW_BYTES + KEY_DIGEST_BYTES], number)
        return window

    def _clear(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._tables: dict[int, array[int]] = {}
        self._head = 0  # the oldest row that may be alive
        self._next = 0  # the number of the next row
        self._count = 0
        self._hand = 0

    def _find(self, key: bytes) -> int | None:
        """Return the number of the row that holds a key, alive or not, or None."""
        bits = int.from_bytes(key[:8], "little")
        table = self._tables.get(bits & _TABLE_MASK)
        if table is None:
            return None
        mask = len(table) - 2
        slot, mark = bits >> _START_SHIFT & mask, bits >> _PRINT_SHIFT
        while entry := table[slot]:
            if entry >> _PRINT_SHIFT == mark:
                number = (entry & _NUMBER_MASK) - 1
                if self._holds(number, key):
                    return number
            slot = slot + 1 & mask
        return None

    def _holds(self, number: int, key: bytes) -> bool:
        """Tell whether the row is still there, not replaced, and the key's."""
        block = self._blocks.get(number // _BLOCK_ROWS)
        if block is None or number < self._head:
            return False
        index = number % _BLOCK_ROWS
        return block.rows.startswith(key, index * _ROW_BYTES) and block.expires_ms[index] != 0
