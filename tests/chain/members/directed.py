"""A life with a story of its own, in which nothing is left to the seed but the clients and the store's pace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from tenure.chain.keys import mark_key
from tests.chain.members.life import Life
from tests.chain.members.machine import Machine
from tests.lives.anomaly import Anomaly

__all__ = ["Directed"]

Story = Callable[["Directed"], Awaitable[None]]
_PATIENCE_S = 60


class Directed(Life):
    """Two members whose home is cleared often: short epochs, small segments, checkpoints after a few of them."""

    def __init__(self, seed: int, story: Story, *, machine_count: int = 2) -> None:
        super().__init__(seed, traits=("collect",))
        self._machine_count = machine_count
        self._story_of = story
        setting = self.setting
        self.setting = setting._replace(
            chain=msgspec.structs.replace(setting.chain, epoch_links_max=8),
            engine=msgspec.structs.replace(setting.engine, segment_bytes=2_048, checkpoint_bytes=2_500),
        )

    async def _befall(self, steps: Sequence[int]) -> None:
        await self._story_of(self)

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Let time pass until it is true, as the loop sees it after each short while."""
        for _ in range(_PATIENCE_S * 50):
            self._look()
            if is_true():
                return
            await asyncio.sleep(0.02)
        raise Anomaly("never", "what this life waits for does not come")

    async def until_freed(self, epoch: int) -> None:
        """Wait until links of an epoch are gone."""
        await self.until(lambda: mark_key(epoch) in self.store.objects)

    @property
    def leader(self) -> Machine:
        return next(machine for machine in self.machines if machine.is_leading)

    @property
    def standby(self) -> Machine:
        return next(machine for machine in self.machines if not machine.is_leading)
