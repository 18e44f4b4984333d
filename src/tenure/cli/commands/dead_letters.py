"""Read dead letters for the command line: those of a queue, or those in a dead-letter topic.

A queue names its dead-letter topic in its config, and several queues may share one: by a queue's name, only its own
letters are read. Jobs that a queue parked stay in the queue, under their own seqs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.cli.remote import plain
from tenure.contract import provenance
from tenure.contract.dead_letters import Selection
from tenure.core.tag_match import parse_match
from tenure.errors import Invalid, NotFound

if TYPE_CHECKING:
    from tenure.client.client import Client
    from tenure.contract.replies import ReadRecord

__all__ = ["PAGE", "Letter", "Place", "place_of", "selection_of"]

PAGE: Final = 1_000


class Letter(msgspec.Struct):
    """One dead letter, or one parked job, with its origin and its reason."""

    seq: int
    source: str
    source_seq: int | None
    deliveries: int
    reason: str
    parked: bool
    ts: int | None = None
    tag: str | None = None


def selection_of(seqs: list[int] | None, match: str | None, reason_like: str | None) -> Selection:
    """Return the selection of the command line; a ``*`` at the end of a tag matches every tag with that prefix.

    Raises Invalid for a tag that is not valid.
    """
    wanted: object = ["tag", "Glob", match] if match is not None and match.endswith("*") else match
    return Selection(
        seqs=frozenset(seqs) if seqs else None,
        match=None if match is None else parse_match(wanted),
        reason_like=reason_like or None,
    )


class Place:
    """The place of the letters: ``topic``, as letters or as parked jobs; ``only_from`` leaves out those of other
    queues.
    """

    def __init__(self, client: Client, topic: str, *, parked: bool, only_from: str | None) -> None:
        self._client = client
        self.topic = topic
        self.parked = parked
        self.only_from = only_from

    def letters(self, chosen: Selection, *, limit: int) -> Iterator[Letter]:
        """Yield the present letters in the order of their seqs; none where the topic does not exist yet."""
        found = 0
        for letter in self._parked(chosen) if self.parked else self._letters():
            if chosen.takes(letter.seq, letter.tag, letter.reason):
                yield letter
                found += 1
                if found == limit:
                    return

    def _letters(self) -> Iterator[Letter]:
        cursor, end = 0, None
        while end is None or cursor < end:
            try:
                page = self._client.diff(self.topic, from_seq=cursor, limit=PAGE, include_tags=True)
            except NotFound:
                if self.only_from is None:
                    raise
                return  # the first dead letter creates it
            end = page.head_seq if end is None else end
            for record in page.records:
                letter = _letter(record)
                # A redriven job keeps its provenance in its own queue, and is no dead letter any more.
                if letter is not None and letter.source != self.topic and self.only_from in (None, letter.source):
                    yield letter
            if page.next_from_seq <= cursor:
                return
            cursor = page.next_from_seq

    def _parked(self, chosen: Selection) -> Iterator[Letter]:
        cursor: str | None = None
        while True:
            page = self._client.jobs(self.topic, state="parked", limit=PAGE, cursor=cursor)
            for row in page.jobs:
                tag = self._client.job(self.topic, row.seq).tag if chosen.match is not None else None
                reason = row.reason or ""
                yield Letter(row.seq, self.topic, row.seq, row.deliveries, reason, parked=True, tag=tag)
            cursor = page.next_cursor
            if cursor is None:
                return

    def one(self, seq: int) -> dict[str, Any]:
        """Return one letter with its whole data. Raises NotFound."""
        if self.parked:
            found: dict[str, Any] = plain(self._client.job(self.topic, seq))
            if found["state"] != "parked":
                raise NotFound(f"job {seq} of {self.topic!r} is {found['state']}, not parked", seq=seq)
            return found | {"source": self.topic, "source_seq": seq}
        records = self._client.diff(self.topic, from_seq=max(0, seq - 1), limit=1, include_tags=True).records
        letter = _letter(records[0]) if records and records[0].seq == seq else None
        if letter is None or self.only_from not in (None, letter.source):
            raise NotFound(f"no dead letter {seq} in {self.topic!r}: list them with tenure dead list", seq=seq)
        return {"topic": self.topic, **plain(records[0]), **plain(letter)}


def place_of(client: Client, name: str, *, parked: bool | None) -> Place:
    """Return the place of the dead letters of a topic. ``parked`` None: parked jobs only where there can
    be no letters.
    """
    info = client.topic(name, touch=False)
    if info.queue is None:
        if parked:
            raise Invalid(f"{name!r} is a log: only queues park jobs")
        return Place(client, name, parked=False, only_from=None)
    dead_letter = info.config.dead_letter
    blocks = info.config.dlq_strategy == "block"
    if parked or (parked is None and (blocks or (dead_letter is None and info.queue.parked > 0))):
        return Place(client, name, parked=True, only_from=None)
    return Place(client, dead_letter or name, parked=False, only_from=name if dead_letter else None)


def _letter(record: ReadRecord) -> Letter | None:
    """Return a record as a dead letter; None where it has no provenance."""
    origin = provenance.read(record.meta)
    if origin is None:
        return None
    return Letter(
        record.seq,
        origin.topic,
        origin.seq or None,
        origin.deliveries,
        origin.reason,
        parked=False,
        ts=record.ts,
        tag=record.tag,
    )
