"""Upkeep of the manifest: runs and checkpoints, written in the background by any writer.

Both are functions of the folded state, so it does not matter which writer makes one, or how many do. The writer whose
delta crossed the line does it; the others step in only when it seems to have died.
"""

from __future__ import annotations

import asyncio
import logging

from tenure.buffer.manifest import decide
from tenure.buffer.manifest.format import (
    FORMAT,
    Checkpointed,
    Op,
    Run,
    RunBody,
    Seal,
    State,
    checksum_of,
    decode,
    encode,
)
from tenure.buffer.manifest.keys import CHECKPOINT, checkpoint_key, run_key
from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.settings import BufferSettings
from tenure.errors import Invalid, TenureError
from tenure.objects.retrying import RetryingStore

__all__ = ["Upkeep", "run_of"]

log = logging.getLogger("tenure.buffer")

_CHECKPOINTS_KEPT = 2
_RECORD_BYTES = 256
"""The bytes of a producer's record in a checkpoint, at most, except for names with many escapes."""


def run_of(state: State, count: int) -> tuple[Run, bytes]:
    """Return the run of the tail's first ``count`` entries, and its object's bytes."""
    entries = state.tail[:count]
    data = encode(RunBody(FORMAT, state.buffer, state.tail_seq, entries))
    oldest = min(entry.name for entry in entries)
    return Run(state.tail_seq, count, checksum_of(data), oldest, max(entry.last_ms for entry in entries)), data


class Upkeep:
    """A background writer of due runs and checkpoints; the next commit announces them."""

    def __init__(self, retrying: RetryingStore, settings: BufferSettings, metrics: BufferMetrics) -> None:
        self._retrying = retrying
        self._settings = settings
        self._metrics = metrics
        self._run: Run | None = None
        self._checkpoint = -1
        self._attempted = -1
        self._producers_max = min(settings.producers_max, settings.checkpoint_bytes_max // _RECORD_BYTES)
        self._task: asyncio.Task[None] | None = None

    def pending_ops(self, state: State) -> list[Op]:
        """Return the operations for the next commit: what to announce, and which producers to forget."""
        return decide.forget(state, self._producers_max) + self.unannounced(state)

    def unannounced(self, state: State) -> list[Op]:
        """Return the operations for what was written and the state does not show yet."""
        ops: list[Op] = []
        run = self._run
        if run is not None and run.first_seq == state.tail_seq and run.count <= len(state.tail):
            ops.append(Seal(run))
        if state.checkpoint < self._checkpoint <= state.number:
            ops.append(Checkpointed(self._checkpoint))
        return ops

    def schedule(self, before: State, state: State) -> None:
        """Start what became due with our own delta; at most one thing at a time."""
        if self._task is not None and not self._task.done():
            return
        run, every = self._settings.run_entries, self._settings.checkpoint_deltas
        crossed = len(before.tail) < run <= len(state.tail)
        sealing = crossed or len(state.tail) >= run + run // 2
        known = max(state.checkpoint, self._attempted)
        pointing = (state.number % every == 0 and state.number > known) or state.number - known >= 2 * every
        sealed = self._run is not None and self._run.first_seq == state.tail_seq
        if (sealing and not sealed) or pointing:
            self._task = asyncio.create_task(self._keep_up(state, seal=sealing and not sealed, point=pointing))

    async def idle(self) -> None:
        """Wait for what is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Abandon what is under way: the next writer does it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_up(self, state: State, *, seal: bool, point: bool) -> None:
        """Write what is due. A failure costs the next reader time, so it is counted and left to the next writer."""
        try:
            if seal:
                run, data = run_of(state, self._settings.run_entries)
                key = run_key(run.first_seq, run.checksum)
                await self._retrying.create_own(key, self._check_size(key, data))
                self._run = run
                self._metrics.runs += 1
            if point:
                self._attempted = state.number
                await self._write_checkpoint(state)
                self._checkpoint = state.number
                self._metrics.checkpoints += 1
                await self._drop_older()
        except TenureError as error:
            self._metrics.upkeep_failures += 1
            log.warning("the manifest was not kept up, the next writer tries again: %s", error)

    async def _write_checkpoint(self, state: State) -> None:
        """Write the state; another writer's checkpoint of it is as good if it can be read. Raises Corrupt if not."""
        key = checkpoint_key(state.number)
        if not await self._retrying.create(key, self._check_size(key, encode(state))):
            decode(State, await self._retrying.get(key, self._settings.checkpoint_bytes_max), key)

    def _check_size(self, key: str, data: bytes) -> bytes:
        """Return the data, or raise Invalid where it is larger than readers accept."""
        if len(data) > (limit := self._settings.checkpoint_bytes_max):
            raise Invalid(
                f"{key} would have {len(data):,} bytes, the limit is {limit:,}: raise checkpoint_bytes_max everywhere",
                code="checkpoint_too_large",
            )
        return data

    async def _drop_older(self) -> None:
        listed = [info.key async for info in self._retrying.list_objects("manifest/checkpoint-")]
        older = sorted(key for key in listed if CHECKPOINT.fullmatch(key) and key <= checkpoint_key(self._checkpoint))
        if len(older) > _CHECKPOINTS_KEPT:
            await self._retrying.delete(older[:-_CHECKPOINTS_KEPT])
