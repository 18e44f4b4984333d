"""Lookup of the manifest's entries by sequence: in the tail, or in run objects, of which a few are cached."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator

from tenure.buffer.batch.format import Descriptor
from tenure.buffer.manifest.format import Entry, Run, RunBody, State, decode
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.manifest.keys import run_key
from tenure.errors import Corrupt
from tenure.objects.retrying import RetryingStore

__all__ = ["Catalog"]

_RUNS_KEPT = 4


class Catalog:
    """A lookup of entries on the journal's present state, by ``retrying`` if given, else by the journal's own."""

    def __init__(self, journal: Journal, *, retrying: RetryingStore | None = None) -> None:
        self._journal = journal
        self._retrying = retrying if retrying is not None else journal.retrying
        self._kept: OrderedDict[int, list[Entry]] = OrderedDict()

    async def descriptors(self, first_seq: int, count: int) -> list[Descriptor]:
        """Return up to ``count`` descriptors from ``first_seq`` on, without a gap."""
        found: list[Descriptor] = []
        async for descriptor in self.walk(first_seq, first_seq + count):
            found.append(descriptor)
        return found

    async def walk(self, low: int, high: int) -> AsyncIterator[Descriptor]:
        """Yield the descriptors from ``low`` up to, not including, ``high``, as far as the queue goes now.

        Batches that are trimmed meanwhile are passed over: a caller that must not lose one checks the first sequence,
        or its fence.
        """
        seq, high = low, min(high, self._journal.state.next_seq)
        while (seq := max(seq, self._journal.state.first_seq)) < high:
            state = self._journal.state
            found = await self._stretch(state, seq)
            if found is None:
                continue
            first, entries = found
            for entry in entries[seq - first : high - first]:
                yield Descriptor.of(seq, entry, state.buffer)
                seq += 1

    async def _stretch(self, state: State, seq: int) -> tuple[int, list[Entry]] | None:
        """Return the entries stored together with ``seq``, and the first one's sequence; None if they were trimmed."""
        if seq >= state.tail_seq:
            return state.tail_seq, state.tail
        run = state.runs[bisect_right(state.runs, seq, key=lambda run: run.end_seq)]
        entries = await self._run(run)
        return None if entries is None else (run.first_seq, entries)

    async def find(self, producer: str, ordinals: set[int]) -> dict[int, int]:
        """Return the sequences of a producer's committed batches; -1 where the batch was trimmed already."""
        state = self._journal.state
        found = dict.fromkeys(ordinals, -1)
        for run in [None, *reversed(state.runs)]:
            first, entries = (state.tail_seq, state.tail) if run is None else (run.first_seq, await self._run(run))
            for seq, entry in enumerate(entries or [], first):
                if entry.producer == producer and entry.ordinal in found:
                    found[entry.ordinal] = seq
            if -1 not in found.values():
                break
        return found

    async def _run(self, run: Run) -> list[Entry] | None:
        """Return a run's entries; None if it was trimmed since the state was read."""
        if run.first_seq in self._kept:
            self._kept.move_to_end(run.first_seq)
            return self._kept[run.first_seq]
        key = run_key(run.first_seq, run.checksum)
        data = await self._retrying.find(key, self._journal.settings.checkpoint_bytes_max)
        if data is None:
            if run not in (await self._journal.sync()).runs:
                return None
            raise Corrupt(f"{key} is missing: the manifest is damaged", code="manifest_missing", key=key)
        body = decode(RunBody, data, key)
        if (body.buffer, body.first_seq, len(body.entries)) != (self._journal.state.buffer, run.first_seq, run.count):
            raise Corrupt(f"{key} is not the run that the manifest names", code="manifest_damaged", key=key)
        self._kept[run.first_seq] = body.entries
        while len(self._kept) > _RUNS_KEPT:
            self._kept.popitem(last=False)
        return body.entries
