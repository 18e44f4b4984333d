"""Send a link: whole, or in parts where it takes long, and then with beats going past it.

Followers hear of their leader by links alone, and a link is one create in the next slot. So nothing that takes longer
than a beat may be sent into that slot: a leader that uploads for a while would be silent, and lose its lead for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tenure.chain.leadership import Leadership
from tenure.chain.link import Part, Run
from tenure.chain.parts import store_parts
from tenure.chain.place import Step

__all__ = ["Load", "send"]


class Load(NamedTuple):
    """What the next link carries: these runs, up to this batch, at this log time.

    ``hand_to`` is the URL of the successor where it gives up the lead, empty for any; None where it does not.
    """

    runs: Sequence[Run]
    last_batch: int
    log_ms: int
    hand_to: str | None = None

    @property
    def bytes(self) -> int:
        """The bytes of its runs."""
        return sum(len(run.data) for run in self.runs)


async def send(leadership: Leadership, load: Load, *, has_parts: bool, passed: Callable[[Step], None]) -> None:
    """Commit a link; ``has_parts`` says whether every reader of this home knows of parts.

    ``passed`` is called after each link. Raises as `Leadership.ship`, and Corrupt where the home holds another part.
    """
    parts: Sequence[Part] = ()
    if has_parts and load.bytes > leadership.uplink.whole_bytes_max:
        parts = await _store_beating(leadership, load, passed)
    await _ship(leadership, load, parts, passed)


async def _store_beating(leadership: Leadership, load: Load, passed: Callable[[Step], None]) -> list[Part]:
    """Store the parts of a link, and send a beat whenever one is due meanwhile. Raises as ``send``."""
    began_ms = leadership.clock.boot_ms()
    storing = asyncio.ensure_future(_store(leadership, load))
    try:
        while not storing.done():
            await asyncio.wait({storing}, timeout=leadership.beat_wait_s)
            if leadership.beats and not storing.done():
                log_ms = load.log_ms + leadership.clock.boot_ms() - began_ms if load.log_ms else 0
                await _ship(leadership, Load((), leadership.place.end.batch, log_ms), (), passed)
        return storing.result()
    finally:
        storing.cancel()


async def _store(leadership: Leadership, load: Load) -> list[Part]:
    chain, is_over = leadership.chain, leadership.metrics.counting(leadership.is_over)
    return await store_parts(chain.store, load.runs, epoch=leadership.epoch, uplink=leadership.uplink, is_over=is_over)


async def _ship(leadership: Leadership, load: Load, parts: Sequence[Part], passed: Callable[[Step], None]) -> None:
    before = leadership.place
    await leadership.ship(
        load.runs,
        parts=parts,
        first_batch=before.end.batch + 1,
        last_batch=load.last_batch,
        log_ms=load.log_ms,
        is_released=load.hand_to is not None,
        hand_to=load.hand_to or "",
    )
    passed(Step(leadership.last._replace(runs=load.runs), before, leadership.place))
