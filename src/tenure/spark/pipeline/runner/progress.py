"""The progress of a streaming query: the batches of a micro-batch, and the lag after it.

Spark reports offsets, which are numbers of batches: their entries and bytes, and the age of the next one, are in the
manifest. A topic reports how many records wait and how old the first is, and not how many bytes they have. Both are
read beside the query, for people: where they cannot be read, the query goes on and reports them as unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tenure.buffer.batch.format import Descriptor
from tenure.buffer.collecting.quarantine import find_quarantined
from tenure.buffer.ingest.sink import Commit
from tenure.buffer.manifest.catalog import Catalog
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.reading.lag import Lag
from tenure.buffer.settings import BufferSettings
from tenure.errors import TenureError
from tenure.objects.background import background
from tenure.objects.store import open_store
from tenure.spark.pipeline.file.sections import Pipeline
from tenure.spark.pipeline.runner.topics import topic_lag

__all__ = ["Look", "Progress", "entries_of", "progress_of"]

log = logging.getLogger("tenure.spark")


class Look(NamedTuple):
    """The batches of a commit, and the lag after it; None for what is not known."""

    descriptors: tuple[Descriptor, ...] | None = None
    lag: Lag | None = None


Progress = Callable[[Commit], Look]


def progress_of(pipeline: Pipeline) -> Progress:
    """Return a function that looks how far a query of this pipeline is after a commit; it never raises."""
    look = partial(_in_topic, pipeline) if pipeline.source.topic is not None else _Manifest(pipeline.buffer_url)

    def ahead(commit: Commit) -> Look:
        try:
            return look(commit)
        except (TenureError, OSError) as error:
            log.info("the lag is not known: %s", error)
            return Look()

    return ahead


def entries_of(pipeline: Pipeline) -> Callable[[Commit, bool], int | None]:
    """Return a function that returns the entries of a commit by the manifest; None where they are not known.

    It is careful where that is asked for: a batch that the group has given up counts only until then, as this costs a
    listing. A topic does not say how many records a range of its seqs has.
    """
    if pipeline.source.topic is not None:
        return lambda _commit, _careful: None
    manifest, group = _Manifest(pipeline.buffer_url), pipeline.source.group

    def entries(commit: Commit, careful: bool) -> int | None:
        try:
            found = background().run(manifest.descriptors(commit.low, commit.high))
            given_up = set[int]()
            if careful:
                store = open_store(pipeline.buffer_url)
                listing = find_quarantined(store, commit.low, commit.high, group=group, settings=BufferSettings())
                given_up = background().run(listing)
        except (TenureError, OSError) as error:
            log.info("the entries of %s are not known: %s", commit, error)
            return None
        is_whole = len(found) == commit.high + 1 - commit.low
        return sum(each.entries for each in found if each.seq not in given_up) if is_whole else None

    return entries


class _Manifest:
    """The manifest of a buffer, read on from where it was read last."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._journal: Journal | None = None

    def __call__(self, commit: Commit) -> Look:
        return background().run(self._look(commit.low, commit.high))

    async def descriptors(self, low: int, high: int) -> list[Descriptor]:
        """Return the batches ``low`` to ``high``, as far as the manifest has them."""
        journal = await self._opened()
        await journal.sync()
        return await Catalog(journal).descriptors(low, high + 1 - low)

    async def _opened(self) -> Journal:
        if self._journal is None:
            journal = Journal(self._url)
            await journal.open(create=False, writing=False)
            self._journal = journal
        return self._journal

    async def _look(self, low: int, high: int) -> Look:
        journal = await self._opened()
        state, catalog = await journal.sync(), Catalog(journal)
        descriptors = await catalog.descriptors(low, high + 1 - low)
        waiting = await catalog.descriptors(high + 1, 1)
        now_ms = journal.clock.wall_ms()
        age_ms = max(0, now_ms - waiting[0].first_ms) if waiting else 0
        return Look(tuple(descriptors), Lag(state.next_seq - high - 1, age_ms))


def _in_topic(pipeline: Pipeline, commit: Commit) -> Look:
    return Look(None, topic_lag(pipeline, commit.high))
