"""Ranges of a pipeline that did not balance: kept beside its notes until somebody has looked at them.

A range that did not balance is not acknowledged. Where the table holds it already, as some tables show their count only
after the commit, the next run would continue after it and so acknowledge it: this note stops the next run. An operator
accepts the range, by its name, and the run goes on.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from tenure.buffer.manifest.keys import NOTE, note_key, notes_prefix
from tenure.clock import SystemClock
from tenure.errors import Conflict, NotFound, TenureError
from tenure.objects.background import background
from tenure.objects.store import ObjectStore, open_store

__all__ = ["Unbalanced", "accept_unbalanced", "demand_accepted", "forget_settled", "note_unbalanced", "unbalanced_of"]

_NOTE_BYTES_MAX: Final = 64 << 10
_HIGH_MASK: Final = 0xFFFFFFFF
"""The key of a note ends with 8 hexadecimal digits."""


class Unbalanced(msgspec.Struct, frozen=True, kw_only=True):
    """A range that did not balance: the term, and the two counts that differ."""

    low: int
    high: int
    term: str
    before: int
    after: int
    message: str
    published: bool
    """Whether the table holds the range."""
    noted_ms: int
    accepted: bool = False

    @property
    def range(self) -> tuple[int, int]:
        return self.low, self.high


def note_unbalanced(url: str, pipeline: str, error: TenureError) -> None:
    """Note the range of an ``unbalanced`` error. Raises what the store raises."""
    found = error.detail
    kept = {name: found[name] for name in ("low", "high", "term", "before", "after", "published")}
    _put(url, pipeline, Unbalanced(message=error.message, noted_ms=SystemClock().wall_ms(), **kept))


def unbalanced_of(url: str, pipeline: str) -> list[Unbalanced]:
    """Return the noted ranges of a pipeline, in order. Raises what the store raises."""
    return background().run(_all(open_store(url), _name(pipeline)))


def demand_accepted(found: list[Unbalanced], file: object) -> None:
    """Raise Conflict (``unbalanced``) where the table holds a range that nobody has accepted."""
    for each in found:
        if each.published and not each.accepted:
            raise Conflict(
                f"{each.message}. This run stops, as it would acknowledge the range. Compare the table with the buffer "
                f"(a backfill of {each.low} to {each.high} into a new table counts again); then go on with: "
                f"tenure pipeline accept {file} {each.low} {each.high}",
                code="unbalanced",
                low=each.low,
                high=each.high,
                term=each.term,
                before=each.before,
                after=each.after,
                published=True,
                noted=True,
            )


def accept_unbalanced(url: str, pipeline: str, low: int, high: int) -> Unbalanced:
    """Accept a range as it is, and return it. Raises NotFound (``not_unbalanced``) where none is noted."""
    for each in unbalanced_of(url, pipeline):
        if each.range == (low, high):
            _put(url, pipeline, accepted := msgspec.structs.replace(each, accepted=True))
            return accepted
    raise NotFound(f"no range {low} to {high} of {pipeline} is noted as unbalanced", code="not_unbalanced")


def forget_settled(url: str, pipeline: str, found: list[Unbalanced], *, reached: int | None) -> None:
    """Delete the notes of ranges that a run which ended well, and ``reached`` a batch, went past.

    A range that was not in the table has been written meanwhile: it balanced then, or was accepted.
    """
    passed = -1 if reached is None else reached
    gone = [_key(pipeline, each) for each in found if each.published or each.high <= passed]
    if gone:
        background().run(open_store(url).delete(gone))


def _name(pipeline: str) -> str:
    return f"{pipeline}.unbalanced"


def _key(pipeline: str, noted: Unbalanced) -> str:
    return note_key(_name(pipeline), noted.low, f"{noted.high & _HIGH_MASK:08x}")


def _put(url: str, pipeline: str, noted: Unbalanced) -> None:
    background().run(open_store(url).put(_key(pipeline, noted), msgspec.json.encode(noted)))


async def _all(store: ObjectStore, name: str) -> list[Unbalanced]:
    keys = sorted([info.key async for info in store.list(notes_prefix(name)) if NOTE.fullmatch(info.key)])
    found = await asyncio.gather(*(store.get(key, limit_bytes=_NOTE_BYTES_MAX) for key in keys))
    return [msgspec.json.decode(data, type=Unbalanced) for data in found]
