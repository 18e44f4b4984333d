"""The committing half of the uploader: deltas of uploaded batches, and what is known of each after a failure.

A commit whose outcome is unknown is settled by the next one. It is decided on the newest state and takes the number
that the one before it wanted, or finds it taken; by the names on the producer's record it tells the two apart. So a
producer goes on after an outage with the journal that it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tenure.buffer.manifest import decide
from tenure.buffer.manifest.catalog import Catalog
from tenure.buffer.manifest.format import Entry, Op, State
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.writing.outage import CommitTime, not_written
from tenure.buffer.writing.pending import PendingBatch
from tenure.errors import Indeterminate, LeaseLost, Overloaded, TenureError
from tenure.objects.store import OutcomeUnknown, StoreRefused

__all__ = ["Committer"]


class _MustUploadAgain(Exception):
    """Names that the collector voided before they were committed."""

    def __init__(self, names: set[str]) -> None:
        self.names = names


class Committer:
    """The commits of one producer, one at a time; ``upload`` stores a batch under a new name."""

    def __init__(
        self, journal: Journal, upload: Callable[[PendingBatch], Awaitable[None]], *, replays: bool = False
    ) -> None:
        self._journal = journal
        self._upload = upload
        self._replays = replays
        self._seen = self._recorded()
        self._attempted: set[str] = set()
        """The names in the delta that the present call of ``commit`` may have created."""
        self._doubtful: set[str] = set()
        """The names in deltas whose outcome is unknown, since the last commit that succeeded."""

    async def commit(self, batches: Sequence[PendingBatch]) -> None:
        """Commit uploaded batches in one delta, in order, and settle those whose outcome is known or given up.

        The others may be passed again. Raises what the producer cannot go on after: another one of its name, a damaged
        manifest, a limit.
        """
        entries = [batch.entry for batch in batches if batch.entry is not None]
        self._attempted = set()
        time = CommitTime([batch.time for batch in batches])
        try:
            if time.is_over:
                raise OutcomeUnknown("it has not answered since they were produced")
            state = await self._journal.commit(lambda state, doubt: self._decide(state, doubt, entries), time=time)
            self._doubtful |= {entry.name for entry in entries}  # committed, but where is not known yet
            seqs = await self._seqs(state, entries, time)
        except _MustUploadAgain as again:
            await self._upload_again(batches, again.names)
        except OutcomeUnknown as error:
            self._doubtful |= self._attempted
            self._fail([batch for batch in batches if batch.time.is_over], error)
        except (Overloaded, StoreRefused) as error:
            self._fail(batches, error)
        except (Indeterminate, LeaseLost) as error:  # the record is forgotten, or another's
            self._fail([batch for batch in batches if self._is_doubtful(batch)], error)
            if isinstance(error, LeaseLost):
                raise
        else:
            self._seen, self._doubtful = self._recorded(), set()
            for batch in batches:
                batch.succeed(seqs[batch.ordinal])

    def _decide(self, state: State, in_doubt: bool, entries: list[Entry]) -> list[Op] | None:
        names = {entry.name for entry in entries}
        if in_doubt:
            self._doubtful |= names
        ops = decide.append(
            state,
            entries,
            known=None if self._replays else decide.Known(self._seen, self._doubtful),
            in_doubt=not names.isdisjoint(self._doubtful),
            producers_max=self._journal.settings.producers_max,
        )
        if voided := decide.void_names(state, entries):
            raise _MustUploadAgain(voided)
        self._attempted = names
        return ops

    async def _upload_again(self, batches: Sequence[PendingBatch], names: set[str]) -> None:
        for batch in batches:
            if batch.entry is not None and batch.entry.name in names:
                self._journal.metrics.reuploads += 1
                try:
                    await self._upload(batch)
                except TenureError as error:
                    self._fail([batch], error)

    def _fail(self, batches: Sequence[PendingBatch], cause: TenureError) -> None:
        """Settle batches that were not committed, or may have been where a commit of them is in doubt."""
        for batch in batches:
            self._journal.metrics.batches_failed += 1
            if self._is_doubtful(batch):
                message = f"these entries may be in the buffer, as a commit of them was in doubt: {cause.message}"
                batch.fail(Indeterminate(message, code=cause.code))
            else:
                batch.fail(not_written(cause.message) if isinstance(cause, OutcomeUnknown) else cause)

    def _is_doubtful(self, batch: PendingBatch) -> bool:
        return batch.entry is not None and batch.entry.name in self._doubtful

    def _recorded(self) -> int:
        """Return the last ordinal that the manifest shows of this producer; -1 if none."""
        record = self._journal.state.producers.get(self._journal.id)
        return -1 if record is None else record.ordinal

    async def _seqs(self, state: State | None, entries: list[Entry], time: CommitTime) -> dict[int, int]:
        """Return the sequence of each ordinal: from our own delta, or after a lost reply from the manifest."""
        if state is not None and state.tail and state.tail[-len(entries) :] == entries:
            first = state.next_seq - len(entries)
            return {entry.ordinal: first + index for index, entry in enumerate(entries)}
        catalog = Catalog(self._journal, retrying=self._journal.retrying.within(time))
        return await catalog.find(self._journal.id, {entry.ordinal for entry in entries})
