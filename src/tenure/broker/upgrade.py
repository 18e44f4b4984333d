"""Upgrade: the new features of a version, off until they are turned on for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from tenure.broker.durability.committer import Committer
from tenure.broker.engine import Engine
from tenure.clock import SystemClock
from tenure.contract.replies import FeatureInfo, UpgradeStatus
from tenure.errors import Conflict, TenureError
from tenure.log import checkpoint
from tenure.log.disk import Disk
from tenure.log.features import FEATURES, Feature, FeatureSet
from tenure.log.log import FileLog
from tenure.settings import Settings

__all__ = ["Upgrade", "finalize_closed", "status_of"]

logger = logging.getLogger("tenure.broker")


def status_of(features: FeatureSet) -> UpgradeStatus:
    """Return the features of a log, for a caller."""
    return UpgradeStatus(_infos(features.on), _infos(features.off))


def _infos(features: tuple[Feature, ...]) -> list[FeatureInfo]:
    return [FeatureInfo(feature.name, feature.since) for feature in features]


def finalize_closed(disk: Disk, *, known: Sequence[Feature] = FEATURES) -> UpgradeStatus:
    """Turn on every feature of this version in a directory that no process has open, durably.

    Raises Conflict where one has, Corrupt, Closed, Overloaded where the disk has no room for another segment.
    """
    log = FileLog.open(disk, known=known)
    try:
        engine = Engine(log, clock=SystemClock(), settings=Settings())
        engine.recover(checkpoint.load(disk))
        engine.turn_on_features()
        engine.sync()
    finally:
        log.close()
    return status_of(log.features)


class Upgrade:
    """The features of an open broker: turned on by a call, or after ``upgrade_finalize_after_ms``."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._committer = committer
        self._timer: asyncio.TimerHandle | None = None
        self._finalizing: asyncio.Task[None] | None = None
        #: Asked before features are turned on by themselves; raises where others could not read the log then.
        self.check_readers: Callable[[Sequence[FeatureInfo]], Awaitable[None]] | None = None
        delay_ms = engine.settings.upgrade_finalize_after_ms
        if engine.log.features.off:
            logger.info(
                "features of this version are off until tenure upgrade finalize: %s",
                ", ".join(feature.name for feature in engine.log.features.off),
            )
            if delay_ms:
                self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._start)

    def status(self) -> UpgradeStatus:
        """Return which features are on and off."""
        return status_of(self._engine.log.features)

    async def finalize(self) -> None:
        """Turn on every feature of this version; return once that is durable.

        Raises Overloaded where the disk has no room for it, Closed where the log has failed; nothing changed then.
        Raises Indeterminate where the disk fails meanwhile.
        """
        fresh = ", ".join(feature.name for feature in self._engine.log.features.off)
        await self._committer.durable(self._engine.turn_on_features())
        if fresh:
            logger.info("the upgrade is final, these features are on: %s", fresh)

    def _start(self) -> None:
        self._finalizing = asyncio.create_task(self._finalize_by_itself())

    async def _finalize_by_itself(self) -> None:
        try:
            if self.check_readers is not None:
                await self.check_readers(self.status().off)
            await self.finalize()
        except Conflict as error:
            logger.warning("the features of this version stay off for now: %s", error.message)
            delay_ms = self._engine.settings.upgrade_finalize_after_ms
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._start)
        except TenureError as error:
            logger.warning("the features of this version stay off, call tenure upgrade finalize: %s", error.message)

    def close(self) -> None:
        """Turn nothing on by itself any more."""
        if self._timer is not None:
            self._timer.cancel()
