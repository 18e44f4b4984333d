"""The window of idempotency keys: which keys were used lately, and the seqs they got; about 65 bytes a key.

A million keys as Python objects would cost 300 MB, so a key is 44 bytes in a block of rows, in the order of arrival,
and 8 bytes in an open-addressed table that leads to its row. Three decisions keep every step short:

- The hash is split over 4,096 small tables, each growing on its own: no step ever rehashes the whole window.
- Expiry moves the head past old rows and frees whole blocks; the tables are not touched. An entry that leads to a row
  no longer there is skipped, and swept out when its table is next rebuilt.
- Where the window was changed, a row can expire before an older one: ``get`` looks at the row's own time, and a hand
  that visits one block per ``expire`` frees such blocks after the head.

Digests are all that is kept: 128 bits of the key, so that no two keys are ever taken for one, and 64 bits of the
payload, to notice a key used twice for different things.
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

_BLOCK_SHIFT: Final = 9
_BLOCK_ROWS: Final = 1 << _BLOCK_SHIFT
_INDEX_MASK: Final = _BLOCK_ROWS - 1
_ROW: Final = Struct("<16sQIQ")  # key digest, first seq, count, payload digest; the expiry lies beside it
_ROW_BYTES: Final = _ROW.size
_TABLES_COUNT: Final = 1 << 12
_SLOTS_MIN: Final = 8
# A slot of a table: 20 bits of the key's hash, which also say where the search starts, then the number of its row plus
# one in 44 bits. So other keys are mostly skipped, and a table is rebuilt, without looking at rows. 0 is an empty slot.
_NUMBER_BITS: Final = 44
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1


class KeyEntry(msgspec.Struct, frozen=True, gc=False):
    """The seqs that the append under a key got, a digest of its payload, and the log time until which it is kept."""

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
    """Up to 512 rows, their expiries, and the latest of these; 0 marks a row that a later one has replaced."""

    __slots__ = ("expires_ms", "expires_ms_max", "rows")

    def __init__(self, rows: bytes = b"", expires_ms: tuple[int, ...] = ()) -> None:
        self.rows = bytearray(rows)
        self.expires_ms = array("Q", expires_ms)
        self.expires_ms_max = max(expires_ms, default=0)

    def append(self, row: bytes, expires_ms: int) -> None:
        self.rows += row
        self.expires_ms.append(expires_ms)
        if expires_ms > self.expires_ms_max:
            self.expires_ms_max = expires_ms


class KeyWindow:
    """The keys of one topic. Time comes only from the callers, who give the log time of the event at hand."""

    __slots__ = ("_blocks", "_count", "_hand", "_head", "_next", "_tables")

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._tables: dict[int, array[int]] = {}
        self._head = 0  # the oldest row that may be alive
        self._next = 0  # the number of the next row
        self._count = 0
        self._hand = 0

    def __len__(self) -> int:
        """Return how many keys are held: exact after ``expire`` unless the window was changed, never too few."""
        return self._count

    def get(self, key: bytes, now_ms: int) -> KeyEntry | None:
        """Return what is remembered under a key digest at this log time; an entry is gone once its time has passed."""
        bits = int.from_bytes(key[:8], "little")
        table = self._tables.get(bits % _TABLES_COUNT)
        if table is None:
            return None
        number = (table[self._slot(table, key, bits=bits)] & _NUMBER_MASK) - 1
        if number < 0:
            return None
        block, index = self._blocks[number >> _BLOCK_SHIFT], number & _INDEX_MASK
        expires_ms = block.expires_ms[index]
        if expires_ms < now_ms:
            return None
        _, first_seq, count, payload_digest = _ROW.unpack_from(block.rows, index * _ROW_BYTES)
        return KeyEntry(first_seq, count, payload_digest, expires_ms)

    def put(self, key: bytes, *, first_seq: int, count: int, payload_digest: int, expires_ms: int) -> None:
        """Remember an append under a key digest until ``expires_ms`` (above 0), in place of what was there before."""
        row = _ROW.pack(key, first_seq, count, payload_digest)
        number = self._next
        block = self._blocks.get(number >> _BLOCK_SHIFT)
        if block is None:
            block = self._blocks[number >> _BLOCK_SHIFT] = _Block()
        block.append(row, expires_ms)
        self._next = number + 1
        self._count += 1
        self._point(key, number)

    def expire(self, now_ms: int) -> int:
        """Forget the keys that have expired by this log time; return how many. Costs what it forgets."""
        before_count = self._count
        while self._head < self._next:
            block = self._blocks.get(self._head >> _BLOCK_SHIFT)
            if block is not None:
                expires_ms = block.expires_ms[self._head & _INDEX_MASK]
                if expires_ms and expires_ms >= now_ms:
                    break
                self._count -= expires_ms != 0
            self._step_head()
        if self._count == 0:
            self._reset()
        else:
            self._move_hand(now_ms)
        return before_count - self._count

    def dump(self, *, now_ms: int) -> bytes:
        """Return the keys alive at this log time, oldest first; the same keys in the same order give the same bytes."""
        rows, times = bytearray(), bytearray()
        for block_number in sorted(self._blocks):
            block = self._blocks[block_number]
            skipped_count = max(self._head - (block_number << _BLOCK_SHIFT), 0)
            alive = [i for i, ms in enumerate(block.expires_ms) if ms >= now_ms and ms and i >= skipped_count]
            if len(alive) == len(block.expires_ms):
                rows += block.rows
            else:
                rows += b"".join(block.rows[i * _ROW_BYTES : (i + 1) * _ROW_BYTES] for i in alive)
            times += Struct(f"<{len(alive)}Q").pack(*[block.expires_ms[i] for i in alive])
        return msgspec.msgpack.encode((rows, times))

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
        expected_count = 1 + window._next // _TABLES_COUNT
        for number in range(window._next):
            at = number * _ROW_BYTES
            window._point(rows[at : at + KEY_DIGEST_BYTES], number, expected_count=expected_count)
        return window

    def _reset(self) -> None:
        """Give back all memory once the last key is gone."""
        self._blocks, self._tables = {}, {}
        self._head = self._next = self._hand = 0

    def _slot(self, table: array[int], key: bytes, *, bits: int) -> int:
        """Return the slot that leads to the key's row, or the empty one where the search for it ends."""
        mask, mark = len(table) - 2, bits >> _NUMBER_BITS
        slot = mark & mask
        while entry := table[slot]:
            if entry >> _NUMBER_BITS == mark and self._holds((entry & _NUMBER_MASK) - 1, key):
                break
            slot = slot + 1 & mask
        return slot

    def _holds(self, number: int, key: bytes) -> bool:
        """Return whether a row is still there and belongs to the key."""
        block = self._blocks.get(number >> _BLOCK_SHIFT)
        if block is None or number < self._head:
            return False
        return block.rows.startswith(key, (number & _INDEX_MASK) * _ROW_BYTES)

    def _point(self, key: bytes, number: int, *, expected_count: int = 1) -> None:
        """Point the slot of a key at this row, in a table made for ``expected_count`` keys if it is not there yet."""
        bits = int.from_bytes(key[:8], "little")
        table = self._tables.get(bits % _TABLES_COUNT)
        if table is None:
            table = self._tables[bits % _TABLES_COUNT] = _make_table(expected_count)
        elif 4 * table[-1] > 3 * (len(table) - 2):
            table = self._tables[bits % _TABLES_COUNT] = self._rebuild(table)
        slot = self._slot(table, key, bits=bits)
        if entry := table[slot]:
            self._replace((entry & _NUMBER_MASK) - 1)
        else:
            table[-1] += 1
        table[slot] = bits >> _NUMBER_BITS << _NUMBER_BITS | number + 1

    def _replace(self, number: int) -> None:
        self._blocks[number >> _BLOCK_SHIFT].expires_ms[number & _INDEX_MASK] = 0
        self._count -= 1

    def _rebuild(self, table: array[int]) -> array[int]:
        """Return a table of what still leads to rows, half full at most, so that the next rebuild is far off."""
        blocks = self._blocks
        entries = [entry for entry in table[:-1] if (entry & _NUMBER_MASK) - 1 >> _BLOCK_SHIFT in blocks]
        rebuilt = _make_table(len(entries) + 1)
        mask = len(rebuilt) - 2
        for entry in entries:
            slot = entry >> _NUMBER_BITS & mask
            while rebuilt[slot]:
                slot = slot + 1 & mask
            rebuilt[slot] = entry
        rebuilt[-1] = len(entries)
        return rebuilt

    def _step_head(self) -> None:
        """Move the head past the oldest row, or past a block that the hand has freed; free a block that it leaves."""
        block_number = self._head >> _BLOCK_SHIFT
        self._head = self._head + 1 if block_number in self._blocks else (block_number + 1) << _BLOCK_SHIFT
        if self._head & _INDEX_MASK == 0:
            self._blocks.pop(block_number, None)

    def _move_hand(self, now_ms: int) -> None:
        """Look at one full block after the head's, and free it if all of it has expired."""
        self._hand += 1
        if not self._head >> _BLOCK_SHIFT < self._hand < self._next >> _BLOCK_SHIFT:
            self._hand = self._head >> _BLOCK_SHIFT
            return
        block = self._blocks.get(self._hand)
        if block is not None and block.expires_ms_max < now_ms:
            self._count -= _BLOCK_ROWS - block.expires_ms.count(0)
            del self._blocks[self._hand]


def _make_table(count: int) -> array[int]:
    """Return an empty table, at most half full with ``count`` keys: slots, a power of two, then the number used."""
    slots = max(_SLOTS_MIN, 1 << (2 * count - 1).bit_length())
    return array("Q", bytes(8 * (slots + 1)))
