"""The pace of upkeep on the loop: after each step it leaves twice the time that the step took to other work."""

from __future__ import annotations

import asyncio

from tenure.broker.engine import Engine

__all__ = ["pause"]

_SHARE = 2


async def pause(engine: Engine, started_ms: int) -> None:
    """Wait after a step that was started at this time since boot; not on a full disk, which cannot wait."""
    took_ms = engine.clock.boot_ms() - started_ms
    await asyncio.sleep(0 if engine.log.crowded else _SHARE * took_ms / 1000)
