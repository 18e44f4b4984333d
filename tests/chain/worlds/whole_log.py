"""The log of a simulated leader as the product has it: a `ShippedLog`, with its rolls, seals and recovery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tenure.chain.leadership import Leadership
from tenure.chain.notes import Notes
from tenure.chain.shipped import ShippedLog
from tenure.log import checkpoint
from tenure.testing.simdisk import SimDisk
from tests.chain.worlds.blocking import blocking
from tests.chain.worlds.ops import body, ops_in

__all__ = ["WholeLog"]

_SEGMENT_BYTES: Final = 1_024
_KIND: Final = 20


class WholeLog:
    """A `ShippedLog`, whose blocking calls run beside the virtual loop."""

    def __init__(self, disk: SimDisk, leadership: Leadership, notes: Notes) -> None:
        self.disk = disk
        self.leadership = leadership
        self._log = ShippedLog.lead(disk, leadership, notes, segment_bytes=_SEGMENT_BYTES)

    async def open(self) -> list[int]:
        """Replay, which ships what an earlier life had not shipped; return the operations of the log."""

        def replay() -> list[int]:
            return [op for *_, data in self._log.replay() for op in ops_in(bytes(data))]

        return await blocking(replay)

    def append(self, ops: Sequence[int]) -> bool:
        """Write operations here; return whether they outlast a power loss, which they do once they are shipped."""
        self._log.append([(_KIND, 1, body(op) + bytes(60)) for op in ops])
        self._log.write()
        return False

    async def ship(self) -> None:
        """Commit all that was written. Raises as `Leadership.ship`."""

        def sync() -> None:
            self._log.sync()

        await blocking(sync)

    async def release(self) -> None:
        """Ship everything, give up the lead, and close."""
        await blocking(self._log.close)

    async def keep_house(self) -> None:
        """Bring a checkpoint of what is shipped to the home, and free what it replaces."""
        if self._log.synced_batch < self._log.written_batch:
            return  # a broker makes checkpoints of what is synced
        position = self._log.position()
        checkpoint.save(self.disk, position, b"state at %d" % position.batch)
        await self._log._upkeep.save(position, self._log._notes.notes)
