"""A number for each of some keys, found by arithmetic: a perfect hash, made in Python and asked in SQL.

It stands for a join with as many rows as a range has batches, which costs Spark more in planning than in rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

__all__ = ["Slots"]


class Slots:
    """Numbers below ``size``, another one for each of these keys, which must differ. Other keys get any.

    A key's remainder chooses its bucket, and its quotient the place there; each bucket is just wide enough that no two
    keys meet.
    """

    def __init__(self, keys: Sequence[int]) -> None:
        buckets: list[list[int]] = [[] for _ in keys]
        for key in keys:
            rest, bucket = divmod(key, len(keys))
            buckets[bucket].append(rest)
        self._widths = [_width(bucket) for bucket in buckets]
        *self._starts, self.size = accumulate(self._widths, initial=0)

    def of(self, key: int) -> int:
        """The key's number."""
        rest, bucket = divmod(key, len(self._widths))
        return self._starts[bucket] + rest % self._widths[bucket]

    def sql(self, key: str) -> str:
        """The same as an expression, where ``key`` is one that gives a bigint from 0 on."""
        count = len(self._widths)
        start, width = (f"{_array(each)}[CAST({key} % {count} AS INT)]" for each in (self._starts, self._widths))
        return f"CAST({start} + ({key} DIV {count}) % {width} AS INT)"


def _width(bucket: Sequence[int]) -> int:
    """The least that keeps these numbers apart."""
    width = max(len(bucket), 1)
    while len({number % width for number in bucket}) < len(bucket):
        width += 1
    return width


def _array(numbers: Sequence[int]) -> str:
    """As text, which is parsed faster than an expression per number; the optimizer makes it a constant."""
    return f"from_json('{list(numbers)}', 'array<int>')"
