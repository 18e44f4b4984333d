"""Opening a broker without blocking the loop: the replay runs in a thread and reports its progress."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tenure.broker.broker import Broker
from tenure.broker.data_home import Home, open_home
from tenure.broker.engine import Engine
from tenure.broker.warm_state import Warm
from tenure.clock import Clock
from tenure.log import checkpoint
from tenure.log.disk import Disk
from tenure.log.interface import Frame
from tenure.settings import Settings

__all__ = ["Replay", "open_watched"]


class Replay:
    """The progress of a replay. The replaying thread writes it and any other thread may read it, number by number."""

    def __init__(self) -> None:
        self.frames = 0
        self.segment = 0
        self.segment_last = 0
        self.complete = False

    def watch(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        """Pass frames on and count them."""
        for frame in frames:
            self.frames += 1
            self.segment = frame[2] >> 32
            yield frame

    def as_dict(self) -> dict[str, int]:
        """Return the numbers by name."""
        return {"frames": self.frames, "segment": self.segment, "segment_last": self.segment_last}


async def open_watched(
    home: Home, *, clock: Clock, settings: Settings, replay: Replay, warm: Warm | None = None
) -> Broker:
    """Open a broker with the replay in a thread, so that the loop goes on. Raises what `Broker.open` raises.

    A ``warm`` state saves the replay, where the log contains its position.
    """
    engine, disk = await asyncio.to_thread(_recover, home, clock, settings, replay, warm)
    replay.complete = True
    return Broker(engine, disk)


def _recover(
    home: Home, clock: Clock, settings: Settings, replay: Replay, warm: Warm | None
) -> tuple[Engine, Disk | None]:
    disk, log = open_home(home, settings)
    engine = Engine(log, clock=clock, settings=settings)
    try:
        replay.segment_last = log.segments()[-1].number
        engine.recover(checkpoint.load(disk) if disk is not None else (), watch=replay.watch, warm=warm)
    except BaseException:
        log.close()
        raise
    return engine, disk
