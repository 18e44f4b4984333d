"""The journal: open a buffer's manifest on a store, follow its deltas, and commit to it.

``commit`` takes a decision, not operations: it is called again on the new state whenever another writer took the
number. The order of the steps is the proof; docs/design/buffer.md walks through it.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable
from time import monotonic

from tenure.buffer.manifest.create import create_buffer, find_buffer
from tenure.buffer.manifest.decide import retain_at_least
from tenure.buffer.manifest.fold import fold
from tenure.buffer.manifest.format import FORMAT, Delta, Marker, Op, Requests, State, checksum_of, decode, encode
from tenure.buffer.manifest.keys import CHECKPOINT, delta_key, freed_key, fresh_id
from tenure.buffer.manifest.upkeep import Upkeep
from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.settings import BufferSettings
from tenure.clock import Clock, SystemClock
from tenure.errors import Corrupt, Invalid, NotFound, Overloaded, TenureError
from tenure.objects.metered import Metered
from tenure.objects.retry_time import RetryTime
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectStore, OutcomeUnknown, StoreRefused

__all__ = ["Decision", "Journal"]

Decision = Callable[[State, bool], list[Op] | None]
"""Returns what to commit on this state, or None for nothing; True says that an earlier attempt may have succeeded."""

_OPENINGS_MAX = 8
_STUCK_MAX = 3
_FIRST_READS = 8
_STALE_MS = 10_000


class Journal:
    """One follower and writer of a manifest. ``state`` is that of the last read, and is never changed in place."""

    state: State

    def __init__(self, store: ObjectStore | str, *, settings: BufferSettings | None = None, clock: Clock | None = None):
        self.settings = settings if settings is not None else BufferSettings()
        self.clock = clock if clock is not None else SystemClock()
        self.metrics = BufferMetrics(started_ms=self.clock.wall_ms())
        inner = self.settings.store_at(store) if isinstance(store, str) else store
        self.store = Metered(inner, self.metrics)
        self.retrying = RetryingStore(self.store, self.settings)
        self._calls = self.retrying
        self.id = fresh_id(self.clock.wall_ms())
        self.upkeep = Upkeep(self.retrying, self.settings, self.metrics)
        self._lock = asyncio.Lock()
        self._looked_ms = self._proved_ms = self.clock.boot_ms()
        self._anchor = -1
        self._reported = Requests()
        # Other writers committed between our last two looks, or a commit of ours is in doubt: look before the next
        # create. While the store does not answer that look, no further commit comes into doubt.
        self._contested = False

    async def open(self, *, create: bool, writing: bool = True) -> State:
        """Find the buffer, or create it on an empty prefix; raises NotFound, Corrupt, Conflict, StoreRefused.

        An opener whose settings ask for a longer retention than the buffer's raises it. A reader passes
        ``writing=False``, and needs no right to write.
        """
        marker = await self.marker(create=create)
        self.state = await self._load()
        if self.state.buffer != marker.buffer:
            raise Corrupt(
                f"two buffers under one prefix: buffer.json is of {marker.buffer}, the manifest of {self.state.buffer}",
                code="two_buffers",
            )
        self._anchor = self.state.number
        if writing and self.settings.retain_for_ms > self.state.retain_for_ms:
            await self.commit(lambda state, _: retain_at_least(state, self.settings.retain_for_ms))
        return self.state

    async def marker(self, *, create: bool = False) -> Marker:
        """Return the marker, without reading the manifest; raises NotFound (``no_buffer``), Corrupt, Conflict."""
        marker = await find_buffer(self.retrying, self.settings)
        if marker is not None:
            return marker
        if create:
            return await create_buffer(self.retrying, self.settings, writer=self.id, ts_ms=self.clock.wall_ms())
        raise NotFound(
            f"there is no buffer at {self.store.url}: check where it is, or let a producer make one",
            code="no_buffer",
            url=self.store.url,
        )

    async def sync(self) -> State:
        """Fold what was committed since the last read, and return the state."""
        async with self._lock:
            await self._prove()
            return await self._sync()

    async def commit(self, decide: Decision, *, time: RetryTime | None = None) -> State | None:
        """Commit what ``decide`` returns on the newest state; return None if that is nothing.

        ``time`` bounds its calls in the place of ``call_attempts_max``. Raises what ``decide`` raises, OutcomeUnknown
        when the store stays silent (the commit may have happened if ``decide`` was called; repeating the call finds
        out), StoreFull and StoreRefused, Overloaded when other writers won every attempt.
        """
        async with self._lock:
            self._calls = self.retrying if time is None else self.retrying.within(time)
            try:
                return await self._commit(decide)
            except OutcomeUnknown:
                self._contested = True
                raise
            finally:
                self._calls = self.retrying

    async def _commit(self, decide: Decision) -> State | None:
        started = monotonic()
        in_doubt = False
        await self._prove()
        if self._contested or self.clock.boot_ms() - self._looked_ms > _STALE_MS:
            number = self.state.number
            await self._sync()  # the next number may be taken, or freed: see that before the create
            self._contested = self.state.number > number
        for attempt in range(self.settings.commit_attempts_max):
            ops = decide(self.state, in_doubt)
            if ops is None:
                return None
            folded = await self._attempt(ops)
            if folded is not None:
                self._measure(started)
                return folded
            self.metrics.conflicts += 1
            self._contested = True
            await self.retrying.pause(attempt // 2, self.settings.conflict_ms_max)
            if await self._is_freed(self.state.number + 1):
                # The number may have been used and freed before ours was created there: only the state shows it.
                in_doubt, self.state = True, await self._load()
            else:
                await self._sync()
        raise Overloaded("other writers took every number: try again later", code="contended")

    async def close(self, *, within_ms: float = math.inf) -> None:
        """Wait for the upkeep under way and announce it, within ``upkeep_ms_max``; the next writer does the rest.

        No later commit of this writer can announce it. Where every writer commits once and leaves, no other would.
        """
        try:
            async with asyncio.timeout(min(within_ms, self.settings.upkeep_ms_max) / 1000):
                await self.upkeep.idle()
                if self._anchor >= 0 and self.upkeep.unannounced(self.state):
                    await self.commit(lambda state, _: [] if self.upkeep.unannounced(state) else None)
                    await self.upkeep.idle()
        except (TimeoutError, TenureError):
            self.metrics.upkeep_failures += 1
        finally:
            await self.upkeep.close()

    async def _attempt(self, ops: list[Op]) -> State | None:
        """Create the next delta with these operations; return None if another writer took the number."""
        number, asked = self.state.number + 1, self._asked()
        delta = Delta(
            format=FORMAT,
            buffer=self.state.buffer,
            number=number,
            prev=self.state.chain,
            writer=self.id,
            nonce=secrets.token_hex(8),
            ts_ms=self.clock.wall_ms(),
            ops=[*self.upkeep.pending_ops(self.state), *ops],
            requests=asked - self._reported,
        )
        data = encode(delta)
        if len(data) > self.settings.delta_bytes_max:
            raise Invalid(f"a delta of {len(data):,} bytes exceeds delta_bytes_max", code="delta_too_large")
        folded = fold(self.state, delta, checksum_of(data))  # what the fold refuses is never written
        if not await self._calls.create(delta_key(number), data) or await self._is_freed_after_create(number):
            return None
        before, self.state, self._reported = self.state, folded, asked
        self._looked_ms = self.clock.boot_ms()
        self.upkeep.schedule(before, folded)
        return folded

    def _asked(self) -> Requests:
        """Return what this writer has asked of the store, with the create and the look of a commit made now."""
        return Requests(self.metrics.writes + 1, self.metrics.reads + 1, self.metrics.conflicts)

    async def _is_freed(self, number: int, block: int | None = None) -> bool:
        return await self._calls.exists(freed_key(number // (block or self.state.block)))

    async def _is_freed_after_create(self, number: int) -> bool:
        """Return whether the number was freed before our delta was created there; raises OutcomeUnknown alone."""
        try:
            return await self._is_freed(number)
        except StoreRefused as error:
            raise OutcomeUnknown(f"delta {number} may be stored: {error}") from error

    async def _prove(self) -> None:
        """Every 10 s, check that an already folded delta still exists: a deleted manifest looks like an idle one."""
        now_ms = self.clock.boot_ms()
        if now_ms - self._proved_ms < _STALE_MS:
            return
        if not await self._calls.exists(delta_key(self._anchor)) and not await self._is_freed(self._anchor):
            raise Corrupt(
                f"the manifest is gone: delta {self._anchor} was there", code="manifest_missing", url=self.store.url
            )
        self._anchor, self._proved_ms = self.state.number, now_ms

    async def _sync(self) -> State:
        first, now_ms = self.state.number + 1, self.clock.boot_ms()
        state = await self._read_on_unless_freed(self.state, first)
        self.state = await self._load() if state is None else state
        self._looked_ms = now_ms
        return self.state

    async def _load(self) -> State:
        """Fold the newest checkpoint and the deltas after it; a listing that is out of date is asked again."""
        for attempt in range(_OPENINGS_MAX):
            checkpoint = await self._checkpoint()
            first = 0 if checkpoint is None else checkpoint.number + 1
            state = await self._read_on_unless_freed(checkpoint, first, width=_FIRST_READS)
            if state is not None:
                return state
            await self._calls.pause(attempt, self.settings.backoff_ms_max)
        raise Corrupt(
            "the manifest is gone or cannot be followed: no delta after the last checkpoint that can be read",
            code="manifest_missing",
            url=self.store.url,
        )

    async def _checkpoint(self) -> State | None:
        """Return the newest readable checkpoint. A damaged one costs time only: the one before it is kept, too."""
        listed = [info.key async for info in self._calls.list_objects("manifest/checkpoint-")]
        for key in sorted((key for key in listed if CHECKPOINT.fullmatch(key)), reverse=True):
            data = await self._find_checkpoint(key)
            if data is None:
                continue
            try:
                return decode(State, data, key)
            except Corrupt as error:
                if error.code == "unknown_format":
                    raise
                self.metrics.damaged_checkpoints += 1
        return None

    async def _find_checkpoint(self, key: str) -> bytes | None:
        try:
            return await self._calls.find(key, self.settings.checkpoint_bytes_max)
        except Invalid as error:
            if error.code != "object_too_large":
                raise
            raise Invalid(f"{error.message}: raise checkpoint_bytes_max", code=error.code, key=key) from None

    async def _read_on_unless_freed(self, state: State | None, first: int, width: int = 1) -> State | None:
        """Fold the deltas that follow; None if the numbers from ``first`` were freed: nothing read there counts."""
        failure: Corrupt | None = None
        read = None
        try:
            read = await self._read_on(state, width)
        except Corrupt as error:
            failure = error
        if await self._is_freed(first, 1 if state is None else state.block):
            return None
        if failure is not None:
            raise failure
        return read

    async def _read_on(self, state: State | None, width: int) -> State | None:
        """Fold deltas until one is missing, reading more of them at once the more there are."""
        stuck = 0
        while True:
            first = 0 if state is None else state.number + 1
            found = await asyncio.gather(*(self._find_delta(number) for number in range(first, first + width)))
            for number, data in enumerate(found, first):
                if data is None:
                    break
                state = fold(state, decode(Delta, data, delta_key(number)), checksum_of(data))
                self.metrics.deltas_read += 1
            if None not in found:
                width = min(width * 2, self.settings.reads_max)
            elif not any(found[found.index(None) :]):
                return state
            elif found[0] is None:  # a later one is there: written since this look, or freed, or this one is lost
                stuck += 1
                if stuck == _STUCK_MAX:
                    raise Corrupt(
                        f"delta {first} is missing, but a later one is there", code="manifest_gap", number=first
                    )

    async def _find_delta(self, number: int) -> bytes | None:
        return await self._calls.find(delta_key(number), self.settings.delta_bytes_max)

    def _measure(self, started: float) -> None:
        took_ms = (monotonic() - started) * 1000
        self.metrics.commits += 1
        self.metrics.commit_ms_total += took_ms
        self.metrics.commit_ms_max = max(self.metrics.commit_ms_max, took_ms)
