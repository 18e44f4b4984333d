"""The way of a process to the store of its life: what is on its way goes on while the process is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING

from tenure.testing.simclient import SimClient
from tenure.testing.simstore import SimStore

if TYPE_CHECKING:
    from tests.chain.members.process import Process

__all__ = ["ProcessClient"]


class ProcessClient(SimClient):
    """A client whose requests belong to the network and not to its process."""

    def __init__(self, world: SimStore, process: Process) -> None:
        super().__init__(world, process.name)
        self._process = process

    async def _call(self, kind: str, key: str, size: int, act: Callable[[], None]) -> None:
        await self._process.awake()
        request = super()._call(kind, key, size, act)
        await asyncio.get_running_loop().create_task(request, context=Context())
        await self._process.awake()
