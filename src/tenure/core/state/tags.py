"""The tag index of a topic: exact and prefix lookups whose cost follows the matches, at about 75 bytes an entry.

Entries lie sorted by (tag, seq) in chunks of a few hundred: a list of tags as UTF-8, and beside it an array of seqs.
``bisect`` finds the chunk among the chunks' last tags and the place within it, in C; UTF-8 sorts like the code points
it encodes, so all tags with one prefix are neighbours. Entries of one tag share one bytes object.

The entry of an acked job stays, because its tag is not at hand then. The dead are left out of every answer
and swept out as entries are added: each addition pays for a look at two entries, by a hand that goes round the chunks.
A round over n entries thus takes n / 2 additions, and the index settles at no more than twice its live entries (were
the hand to look at one entry per addition, as many could die as it removes, and there would be no bound).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import chain, filterfalse
from typing import Final, Self

import msgspec

from tenure.core.tag_match import Match
from tenure.errors import Corrupt

__all__ = ["TagIndex"]

_CHUNK_ENTRIES_MAX: Final = 256
_LOOKS_PER_ADD: Final = 2


class _Chunk:
    """A stretch of the index: tags ascending, and within a tag its seqs ascending."""

    __slots__ = ("seqs", "tags")

    def __init__(self, tags: list[bytes], seqs: array[int]) -> None:
        self.tags = tags
        self.seqs = seqs


class TagIndex:
    """The tags of one topic's records. ``is_dead`` returns whether the record of a seq is gone, for good."""

    __slots__ = ("_chunks", "_count", "_credit", "_hand", "_is_dead", "_lasts")

    def __init__(self, is_dead: Callable[[int], bool]) -> None:
        self._is_dead = is_dead
        self._chunks: list[_Chunk] = []
        self._lasts: list[bytes] = []  # the last tag of each chunk
        self._count = 0
        self._hand = 0  # the chunk to sweep next
        self._credit = 0  # how many entries may be looked at before more are added

    def __len__(self) -> int:
        """Return how many entries are held, the dead that are not yet swept out included."""
        return self._count

    def add(self, tag: str, seq: int) -> None:
        """Add the tag of the record ``seq``; adding it again changes nothing."""
        key = tag.encode()
        if not self._chunks:
            self._chunks.append(_Chunk([], array("Q")))
            self._lasts.append(key)
        at, place = self._place(key, seq)
        chunk = self._chunks[at]
        if place:
            before = chunk.tags[place - 1]
            if before == key:
                if chunk.seqs[place - 1] == seq:
                    return
                key = before
        chunk.tags.insert(place, key)
        chunk.seqs.insert(place, seq)
        self._count += 1
        size = len(chunk.tags)
        if place + 1 == size:
            self._lasts[at] = key
        if size > _CHUNK_ENTRIES_MAX:
            self._make_room(at, grew_at_end=place + 1 == size)
        self.sweep(_LOOKS_PER_ADD)

    def parts(self, match: Match, *, below: int, looks_max: int) -> Iterator[list[int]]:
        """Yield the live seqs under ``below`` whose tag matches, in the order of the tags, a part for each
        ``looks_max`` entries.

        Entries may be added and swept out between two parts: the next one begins after the last entry that was looked
        at.
        """
        if match.exact is not None:
            key = match.exact.encode()
            high = key + b"\0"
        else:  # no byte of UTF-8 is 0xff: what begins with the prefix lies below the prefix followed by it
            key = (match.prefix or "").encode()
            high = key + b"\xff"
        seq = -1
        while self._chunks:
            found, reached = self._look(key, seq, high=high, looks_max=looks_max)
            yield [seq for seq in filterfalse(self._is_dead, found) if seq < below]
            if reached is None or (match.exact is not None and reached[1] >= below):
                return
            key, seq = reached

    def _look(self, key: bytes, seq: int, *, high: bytes, looks_max: int) -> tuple[list[int], tuple[bytes, int] | None]:
        """Return the next seqs after (key, seq) with tags below ``high``, and the last entry where there are more."""
        at, place = self._place(key, seq)
        found: list[int] = []
        while at < len(self._chunks):
            chunk = self._chunks[at]
            end = bisect_left(chunk.tags, high)
            stop = min(end, place + looks_max - len(found))
            if stop > place:
                found += chunk.seqs[place:stop]
                key, seq = chunk.tags[stop - 1], chunk.seqs[stop - 1]
            if stop < end:
                return found, (key, seq)
            if end < len(chunk.tags):
                break
            at, place = at + 1, 0
        return found, None

    def sweep(self, looks_count: int) -> None:
        """Allow a look at so many more entries, and drop the dead among them.

        Additions do this by themselves. A caller that removes many records and adds none may call it too.
        """
        self._credit += looks_count
        while self._chunks:
            if self._hand >= len(self._chunks):
                self._hand = 0
            size = len(self._chunks[self._hand].tags)
            if self._credit < size:
                return
            self._credit -= size
            self._hand += 1
            self._purge(self._hand - 1)
        self._credit = 0

    def dump(self) -> bytes:
        """Return the live entries; indexes with the same live entries give the same bytes."""
        for at in reversed(range(len(self._chunks))):
            self._purge(at)
        sizes = array("I", map(len, chain.from_iterable(chunk.tags for chunk in self._chunks)))
        tags = b"".join(chain.from_iterable(chunk.tags for chunk in self._chunks))
        seqs = b"".join(chunk.seqs.tobytes() for chunk in self._chunks)
        return msgspec.msgpack.encode((sizes.tobytes(), tags, seqs))

    @classmethod
    def load(cls, dumped: bytes, is_dead: Callable[[int], bool]) -> Self:
        """Return the index that ``dump`` wrote; raises Corrupt if it cannot have written this."""
        sizes, seqs = array("I"), array("Q")
        try:
            packed_sizes, tags, packed_seqs = msgspec.msgpack.decode(dumped, type=tuple[bytes, bytes, bytes])
            sizes.frombytes(packed_sizes)
            seqs.frombytes(packed_seqs)
        except (msgspec.MsgspecError, ValueError) as error:
            raise Corrupt(f"a tag index cannot be read: {error}") from error
        if len(sizes) != len(seqs) or sum(sizes) != len(tags):
            raise Corrupt(f"a tag index does not add up: {len(sizes)} tags of {len(tags)} bytes, {len(seqs)} seqs")
        index = cls(is_dead)
        every_tag = list(_split(tags, sizes))
        step = _CHUNK_ENTRIES_MAX * 3 // 4
        for at in range(0, len(seqs), step):
            index._chunks.append(_Chunk(every_tag[at : at + step], seqs[at : at + step]))
        index._lasts = [chunk.tags[-1] for chunk in index._chunks]
        index._count = len(seqs)
        return index

    def _place(self, key: bytes, seq: int) -> tuple[int, int]:
        """Return the chunk and the place in it where (key, seq) belongs: right after what is below or equal to it."""
        at = min(bisect_right(self._lasts, key), len(self._chunks) - 1)
        chunk = self._chunks[at]
        place = bisect_right(chunk.tags, key)
        if place == 0 and at > 0:
            at -= 1
            chunk = self._chunks[at]
            place = len(chunk.tags)
        if place == 0 or chunk.tags[place - 1] != key or chunk.seqs[place - 1] <= seq:
            return at, place
        return self._place_among_equals(key, seq, at=at)

    def _place_among_equals(self, key: bytes, seq: int, *, at: int) -> tuple[int, int]:
        """Find the place of a seq that came late: replay adds rewritten records after younger ones of the same tag."""
        first = bisect_left(self._lasts, key)
        at = bisect_left(range(at), seq, lo=first, key=lambda i: self._chunks[i].seqs[-1])
        chunk = self._chunks[at]
        low, high = bisect_left(chunk.tags, key), bisect_right(chunk.tags, key)
        return at, bisect_right(chunk.seqs, seq, low, high)

    def _make_room(self, at: int, *, grew_at_end: bool) -> None:
        """Sweep a chunk that has grown too long; where that frees too little to be worth it, split it.

        A chunk that grew at its end is left full: rising tags, or rising seqs of one tag, will not come back to it.
        """
        chunk = self._chunks[at]
        self._purge(at)
        size = len(chunk.tags)
        if at >= len(self._chunks) or self._chunks[at] is not chunk or size <= _CHUNK_ENTRIES_MAX * 3 // 4:
            return
        keep_count = size - 1 if grew_at_end else size // 2
        self._chunks.insert(at + 1, _Chunk(chunk.tags[keep_count:], chunk.seqs[keep_count:]))
        self._lasts.insert(at + 1, chunk.tags[-1])
        del chunk.tags[keep_count:], chunk.seqs[keep_count:]
        self._lasts[at] = chunk.tags[-1]
        self._hand += at < self._hand

    def _purge(self, at: int) -> None:
        """Drop the dead of one chunk, and the chunk itself where nothing, or too little to stand alone, is left."""
        chunk = self._chunks[at]
        if not any(map(self._is_dead, chunk.seqs)):
            return
        alive = [i for i, seq in enumerate(chunk.seqs) if not self._is_dead(seq)]
        self._count -= len(chunk.tags) - len(alive)
        chunk.tags = [chunk.tags[i] for i in alive]
        chunk.seqs = array("Q", [chunk.seqs[i] for i in alive])
        if at > 0 and len(self._chunks[at - 1].tags) + len(alive) <= _CHUNK_ENTRIES_MAX // 2:
            self._chunks[at - 1].tags += chunk.tags
            self._chunks[at - 1].seqs += chunk.seqs
            alive = []
            self._lasts[at - 1] = self._chunks[at - 1].tags[-1]
        if alive:
            self._lasts[at] = chunk.tags[-1]
        else:
            del self._chunks[at], self._lasts[at]
            self._hand -= at < self._hand


def _split(tags: bytes, sizes: array[int]) -> Iterator[bytes]:
    """Cut the tags apart again; equal neighbours share one object."""
    start, last = 0, b""
    for size in sizes:
        tag = tags[start : start + size]
        start += size
        if tag != last:
            last = tag
        yield last
