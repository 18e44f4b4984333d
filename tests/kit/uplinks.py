"""Uplinks of simulated clients: what one sends takes its time, and what it sends at once shares the rate."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

__all__ = ["Uplinks"]

_STEP_BYTES: Final = 64 * 1024


class Uplinks:
    """The rates of clients, by name, in bytes a second; one that has none sends at once.

    A request that is given up, as its sender's limit is over, has used the uplink until then.
    """

    def __init__(self) -> None:
        self.bytes_per_s: dict[str, int] = {}
        #: What was sent by each client, also in vain.
        self.sent_bytes: Counter[str] = Counter()
        self._under_way: Counter[str] = Counter()

    async def send(self, name: str, size: int) -> None:
        """Take the time that so many bytes take."""
        rate = self.bytes_per_s.get(name, 0)
        if not rate:
            return
        self._under_way[name] += 1
        try:
            while size > 0:
                step = min(size, _STEP_BYTES)
                await asyncio.sleep(step * self._under_way[name] / rate)
                size -= step
                self.sent_bytes[name] += step
        finally:
            self._under_way[name] -= 1
