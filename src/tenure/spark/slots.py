"""A number for each of some names, found by arithmetic: a perfect hash, made in Python and asked in SQL.

It stands for a join with as many rows as a range has batches, which costs Spark more in planning than in rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import accumulate

from tenure.errors import Invalid

__all__ = ["Slots"]


class Slots:
    """Numbers below ``size``, another one for each name. Names that are not among them get any.

    A name's checksum chooses its bucket, and what is left of the checksum its place there; each bucket is just wide
    enough that no two names meet. Raises Invalid (``names_collide``) for names of one checksum.
    """

    def __init__(self, names: Sequence[str]) -> None:
        sums = {zlib.crc32(name.encode()) for name in names}
        if len(sums) < len(names):
            raise Invalid(
                "two batches of this range have names of the same checksum: read it with reader='python'",
                code="names_collide",
            )
        buckets: list[list[int]] = [[] for _ in names]
        for checksum in sums:
            buckets[checksum % len(names)].append(checksum // len(names))
        self._widths = [_width(bucket) for bucket in buckets]
        *self._starts, self.size = accumulate(self._widths, initial=0)

    def of(self, name: str) -> int:
        """The name's number."""
        rest, bucket = divmod(zlib.crc32(name.encode()), len(self._widths))
        return self._starts[bucket] + rest % self._widths[bucket]

    def sql(self, name: str) -> str:
        """The same as an expression, where ``name`` is one that gives a string."""
        checksum, count = f"crc32(CAST({name} AS BINARY))", len(self._widths)
        start, width = (f"{_array(each)}[CAST({checksum} % {count} AS INT)]" for each in (self._starts, self._widths))
        return f"CAST({start} + ({checksum} DIV {count}) % {width} AS INT)"


def _width(bucket: Sequence[int]) -> int:
    """The least that keeps these numbers apart."""
    width = max(len(bucket), 1)
    while len({number % width for number in bucket}) < len(bucket):
        width += 1
    return width


def _array(numbers: Sequence[int]) -> str:
    """As text, which is parsed faster than an expression per number; the optimizer makes it a constant."""
    return f"from_json('{list(numbers)}', 'array<int>')"
