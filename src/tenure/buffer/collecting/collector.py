"""The collector: void first, delete later, and delete nothing in doubt.

It deletes a batch if nothing refers to it, if by the store's clock it is older than the grace period, if it is older
than the oldest referenced batch, and if a committed delta forbids every later reference to it. It deletes deltas block
by block, after the mark that announces it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from tenure.buffer.collecting.backlog import Backlog
from tenure.buffer.collecting.retention import Kept, first_needed, first_unacknowledged, kept_for
from tenure.buffer.manifest.catalog import Catalog
from tenure.buffer.manifest.format import Floor, Op, State, Trim, Void, decode
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.manifest.keys import CHECKPOINT, DELTA, RUN, freed_key, successor
from tenure.buffer.settings import BufferSettings
from tenure.clock import Clock
from tenure.errors import LeaseLost, TenureError
from tenure.objects.store import ObjectInfo, ObjectStore

__all__ = ["BackgroundCollector", "Collected", "Collector"]

log = logging.getLogger("tenure.buffer")


class Collected(msgspec.Struct):
    """The result of one pass, or with ``dry_run`` of the pass that would be made."""

    trimmed: int = 0
    """Batches that lost their last reference in this pass."""
    objects: int = 0
    bytes: int = 0
    locations: list[str] = []
    """Batches deleted."""
    deltas: int = 0
    runs: int = 0
    foreign: list[str] = []
    """Files under ``data/`` that are not the buffer's: never deleted."""
    kept: list[Kept] = []
    """Groups or retention that pin the batches that stay."""
    held_back: str = ""
    """Why the pass stopped where it did."""


class Collector:
    """A deleter of what no group needs any more. Any number may run: the manifest orders their passes.

    >>> import asyncio
    >>> from tenure.buffer import Collector, Producer
    >>> from tenure.testing import SimStore
    >>> async def main():
    ...     store = SimStore()
    ...     async with Producer(store) as producer:
    ...         await (await producer.produce([b"a"])).durable()
    ...     return (await Collector(store).run_once(dry_run=True)).objects
    >>> asyncio.run(main())
    0
    """

    def __init__(
        self, store: ObjectStore | str, *, settings: BufferSettings | None = None, clock: Clock | None = None
    ) -> None:
        self._begin(Journal(store, settings=settings, clock=clock), lambda state: None, opened=False)

    @classmethod
    def of(cls, journal: Journal, guard: Callable[[State], None]) -> Collector:
        """Return a collector on an open journal; ``guard`` is called before every commit, and raises to stop it."""
        collector = cls.__new__(cls)
        collector._begin(journal, guard, opened=True)
        return collector

    def _begin(self, journal: Journal, guard: Callable[[State], None], *, opened: bool) -> None:
        self._journal, self._guard, self._opened = journal, guard, opened
        self._backlog = Backlog(journal.retrying, objects_max=journal.settings.collect_objects_max)
        self._catalog = Catalog(journal)

    async def run_once(self, *, dry_run: bool = False) -> Collected:
        """Make one pass. Raises Corrupt where the manifest is missing or unreadable, with nothing deleted."""
        if not self._opened:
            await self._journal.open(create=False, writing=not dry_run)
            self._opened = not dry_run
        self._guard(await self._journal.sync())
        now_ms = await self._journal.retrying.repeat(self._journal.store.now_ms)
        report = Collected()
        first_seq = await self._trim(now_ms, report, dry_run)
        await self._batches(now_ms, first_seq, report, dry_run)
        await self._deltas(now_ms, report, dry_run)
        await self._runs(now_ms, report, dry_run)
        report.kept = kept_for(self._journal.state, first_seq, now_ms)
        kept = "; ".join(map(str, report.kept)) or "none"
        log.info("%s: %s batches deleted, kept: %s", self._journal.store.url, 0 if dry_run else report.objects, kept)
        return report

    async def close(self) -> None:
        """Wait for the upkeep under way."""
        await self._journal.close()

    # Trimming

    async def _trim(self, now_ms: int, report: Collected, dry_run: bool) -> int:
        """Drop from the manifest what every group has acknowledged and the retention has passed.

        Return the first sequence that stays.
        """
        state = self._journal.state
        target = await first_needed(self._journal, self._catalog, self._backlog, now_ms)
        report.trimmed = target - state.first_seq
        if dry_run or report.trimmed == 0:
            return target
        await self._journal.commit(lambda newer, _: self._decide_trim(newer, target, state.retain_for_ms))
        report.trimmed = self._journal.state.first_seq - state.first_seq
        return self._journal.state.first_seq

    def _decide_trim(self, state: State, target: int, retain_for_ms: int) -> list[Op] | None:
        self._guard(state)
        if state.retain_for_ms > retain_for_ms:  # raised after the target was found: the next pass finds another
            return None
        target = min(target, first_unacknowledged(state))
        return [Trim(target)] if target > state.first_seq else None

    # Batches

    async def _batches(self, now_ms: int, first_seq: int, report: Collected, dry_run: bool) -> None:
        """Void the oldest stretch of unreferenced batches, then delete it."""
        candidates = await self._candidates(now_ms, first_seq, report)
        if not candidates:
            return
        mark = successor(_name(candidates[-1]))
        if not dry_run:
            await self._journal.commit(lambda state, _: self._decide_void(state, mark, now_ms))
            self._guard(self._journal.state)
            void = self._journal.state.void
            candidates = [info for info in candidates if _name(info) < void]
            await self._journal.retrying.delete([info.key for info in candidates])
            self._backlog.drop(len(candidates))
            self._journal.metrics.collected_objects += len(candidates)
            self._journal.metrics.collected_bytes += sum(info.bytes for info in candidates)
        report.locations = [info.key for info in candidates]
        report.objects, report.bytes = len(candidates), sum(info.bytes for info in candidates)

    async def _candidates(self, now_ms: int, first_seq: int, report: Collected) -> list[ObjectInfo]:
        """Return the oldest batches up to the first that is referenced, or young, or one too many."""
        settings, found = self._journal.settings, list[ObjectInfo]()
        oldest = await self._oldest(first_seq)
        async for info in self._backlog.oldest(now_ms):
            if oldest is not None and _name(info) >= oldest:
                report.held_back = f"{oldest} is referenced"
                break
            elif now_ms - info.modified_ms < settings.grace_ms:
                report.held_back = f"{info.key} is younger than the grace period"
                break
            elif len(found) == settings.collect_objects_max:
                report.held_back = "collect_objects_max"
                break
            else:
                found.append(info)
        report.foreign = list(self._backlog.foreign)
        if self._backlog.is_blocked and not report.held_back:
            report.held_back = "too many files that are not the buffer's"
        return found

    async def _oldest(self, first_seq: int) -> str | None:
        """Return the oldest referenced name once everything below ``first_seq`` is trimmed."""
        state = self._journal.state
        names = [run.oldest_name for run in state.runs if run.end_seq > first_seq]
        names += [entry.name for entry in state.tail[max(0, first_seq - state.tail_seq) :]]
        return min(names, default=None)

    def _decide_void(self, state: State, mark: str, now_ms: int) -> list[Op] | None:
        self._guard(state)
        oldest = state.oldest_name()
        below = mark if oldest is None else min(mark, oldest)
        if below <= state.void:
            return None
        return [Void(below, now_ms - self._journal.settings.forget_producer_ms)]

    # The manifest's own objects

    async def _deltas(self, now_ms: int, report: Collected, dry_run: bool) -> None:
        """Publish a floor below the older of two readable checkpoints, then free whole blocks below it."""
        state, block = self._journal.state, self._journal.state.block
        floor = max(state.floor, min(await self._find_covered(), state.checkpoint + 1) // block * block)
        if floor > state.floor and not dry_run:
            await self._journal.commit(lambda newer, _: self._decide_floor(newer, floor))
            floor = self._journal.state.floor
        doomed: list[str] = []
        marked = -1
        async for info in self._journal.retrying.list_objects("manifest/0"):
            found = DELTA.fullmatch(info.key)
            if found is None or len(doomed) == self._journal.settings.collect_objects_max:
                break
            number = int(found[1])
            if number >= floor or now_ms - info.modified_ms < self._journal.settings.grace_ms:
                break
            if number // block > marked and not dry_run:  # the mark is there before the first delta of its block goes
                marked = number // block
                await self._journal.retrying.create_own(freed_key(marked), b"{}\n")
            doomed.append(info.key)
        if not dry_run:
            await self._journal.retrying.delete(doomed)
            self._journal.metrics.freed_deltas += len(doomed)
        report.deltas = len(doomed)

    async def _find_covered(self) -> int:
        """Return the number below which deltas are in two readable checkpoints, as one may be damaged later."""
        listed = [info.key async for info in self._journal.retrying.list_objects("manifest/checkpoint-")]
        numbers = []
        for key in sorted((key for key in listed if CHECKPOINT.fullmatch(key)), reverse=True)[:2]:
            data = await self._journal.retrying.find(key, self._journal.settings.checkpoint_bytes_max)
            if data is not None:  # else a newer one has taken its place
                numbers.append(decode(State, data, key).number + 1)
        return min(numbers) if len(numbers) == 2 else 0

    def _decide_floor(self, state: State, floor: int) -> list[Op] | None:
        self._guard(state)
        return [Floor(floor)] if floor > state.floor else None

    async def _runs(self, now_ms: int, report: Collected, dry_run: bool) -> None:
        """Delete runs that lie wholly below what is referenced."""
        state = self._journal.state
        lowest = state.runs[0].first_seq if state.runs else state.tail_seq
        doomed: list[str] = []
        async for info in self._journal.retrying.list_objects("manifest/run-"):
            found = RUN.fullmatch(info.key)
            if found is None or int(found[1]) >= lowest:
                break
            if now_ms - info.modified_ms >= self._journal.settings.grace_ms:
                doomed.append(info.key)
        report.runs = len(doomed)
        if not dry_run:
            await self._journal.retrying.delete(doomed)


def _name(info: ObjectInfo) -> str:
    return info.key[len("data/") : -len(".parquet")]


class BackgroundCollector:
    """Collection passes in the background of a consumer, one at a time; ``guard`` raises LeaseLost to end them."""

    def __init__(self, journal: Journal, guard: Callable[[State], None], *, wanted: bool) -> None:
        self._journal = journal
        self._collector = Collector.of(journal, guard)
        self._wanted = wanted
        self._passed_at = 0
        self._pass: asyncio.Task[None] | None = None

    def advance(self, frontier: int) -> None:
        """Start a pass if the frontier has moved by ``ack_every`` batches since the last one."""
        if frontier - self._passed_at >= self._journal.settings.ack_every:
            self.start(frontier)

    def start(self, frontier: int) -> None:
        """Start a collection pass unless one is already running."""
        if self._wanted and (self._pass is None or self._pass.done()):
            self._passed_at = frontier
            self._pass = asyncio.create_task(self._run_once())

    async def idle(self) -> None:
        """Wait for the pass under way."""
        if self._pass is not None:
            await asyncio.gather(self._pass, return_exceptions=True)

    async def close(self) -> None:
        """Cancel the pass under way; the next pass finishes it."""
        if self._pass is not None:
            self._pass.cancel()
            await self.idle()

    async def _run_once(self) -> None:
        try:
            await self._collector.run_once()
        except LeaseLost:
            self._wanted = False
        except TenureError:
            self._journal.metrics.collector_failures += 1
