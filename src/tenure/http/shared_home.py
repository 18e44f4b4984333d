"""A home that several servers share: one leads and serves, the others follow warm and take over.

This is the life of one of them: it follows until it leads, serves until it loses the lead or gives it away, and follows
again. While it follows, requests hear who leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from tenure.broker.broker import Broker
from tenure.broker.open import Replay, open_watched
from tenure.broker.serving.loop import store_away
from tenure.broker.warm_state import Warm, WarmState
from tenure.chain.chain import Freed
from tenure.chain.keeper import Keeper
from tenure.chain.leadership import Leadership, Lost
from tenure.chain.member import Led, Member
from tenure.chain.open import locked, retrying_store
from tenure.chain.shipped import ShippedLog
from tenure.chain.signs import Signs
from tenure.chain.standby import Standby
from tenure.clock import Clock
from tenure.contract.replies import FeatureInfo
from tenure.contract.replies.cluster import ClusterInfo
from tenure.errors import Conflict, NotLeader, Overloaded, TenureError
from tenure.http.api.prometheus import Family
from tenure.http.cluster_view import ClusterView
from tenure.http.log_home import explained, open_home_store
from tenure.http.settings import ServerSettings
from tenure.http.successor import check_readers, choose_successor
from tenure.log.disk import open_directory
from tenure.objects.background import background
from tenure.objects.store import OutcomeUnknown, StoreRefused

__all__ = ["SharedHome", "Stage"]

log = logging.getLogger("tenure.server")

_RECENT_MS: Final = 15_000
_HOLD_S: Final = 1.0
"""How long a request waits here until somebody is known to lead: a leader counts as lost after two beats, and is
replaced within less than this.
"""
_GOES_ON: Final = {"not_leader", "overtaken", "left_behind"}
"""What a leader may lose its lead with and follow: its state is dropped, and read again from the chain."""
_TRIED_AGAIN: Final = (OutcomeUnknown, StoreRefused, Freed, Overloaded)
"""What does not end a server that has found its home once: the store may come back, and the disk may have room."""


class Stage(Protocol):
    """What serves while this server leads."""

    def begin(self, broker: Broker) -> None:
        """Serve with this broker."""

    async def end(self) -> None:
        """Serve no more: requests are refused from now on, streams end, and their jobs stay leased."""


class SharedHome:
    """One server's part in a home that it shares. ``open``, then ``close``; it is the context's `Cluster`."""

    def __init__(
        self, settings: ServerSettings, *, clock: Clock, replay: Replay, stage: Stage, on_end: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._replay = replay
        self._stage = stage
        self._on_end = on_end
        self._store = retrying_store(open_home_store(settings), settings.chain)
        self._disk = open_directory(settings.data)
        self._view = ClusterView(settings.advertise, clock)
        #: When this process lost a lead that was not steady, by the boot clock: the last few times.
        self._lost_ms: deque[int] = deque(maxlen=8)
        self._has_led = False
        self._is_over = False
        #: Why it ended by itself, None where it did not.
        self.failed: TenureError | None = None
        self._life: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._lost = asyncio.Event()
        self._gave_away = asyncio.Event()
        self._successor: str | None = None
        #: The lead that is being given away; its last link is not stored yet.
        self._giving: Leadership | None = None
        #: Set, and made again, when it may be known who leads.
        self._news = asyncio.Event()

    # Life

    async def open(self) -> None:
        """Return once this server leads or follows. Raises as `Member.lead`."""
        self._life = asyncio.create_task(self._live())
        settled = asyncio.create_task(self._settled.wait())
        await asyncio.wait({self._life, settled}, return_when=asyncio.FIRST_COMPLETED)
        settled.cancel()
        if self._life.done():
            self._life.result()

    async def _live(self) -> None:
        try:
            while not self._is_over:
                if (won := await self._follow_on()) is not None:
                    await self._lead(*won)
        except TenureError as error:
            if not self._settled.is_set():
                raise
            log.error("this server ends: %s", error.message)
            self.failed = error
            self._on_end()

    async def _follow_on(self) -> tuple[Led, Warm | None] | None:
        """Follow until this server leads; None where store or disk do not let it now.

        Only the first start of a server ends with that: its address or its keys may be wrong.
        """
        try:
            return await self._follow()
        except _TRIED_AGAIN as error:
            if not self._settled.is_set():
                raise
            log.warning("this server cannot follow; it tries on: %s", error.message)
            await asyncio.sleep(self._settings.chain.backoff_ms_max / 1000)
            return None

    async def _follow(self) -> tuple[Led, Warm | None]:
        """Follow until this server leads. The directory stays locked."""
        with locked(self._disk), explained(self._settings.home):
            chain = self._settings.chain
            member = Member(
                self._store,
                self._disk,
                settings=chain,
                clock=self._clock,
                url=self._settings.advertise,
                is_over=lambda: self._is_over,
                beats=True,
            )
            state = WarmState(self._disk, self._settings.engine)
            settle = partial(asyncio.get_running_loop().call_soon_threadsafe, self._settle)
            standby = self._view.standby = Standby(
                member,
                state,
                is_first=not self._has_led,
                losses=self._recent_losses(),
                following=settle,
                leader_found=partial(asyncio.get_running_loop().call_soon_threadsafe, self._tell),
                asked=partial(asyncio.get_running_loop().call_soon_threadsafe, self._say_now),
            )
            try:
                led = await asyncio.wrap_future(background().start(standby.run()))
            finally:
                self._view.diverged_bytes += standby.diverged_bytes
                self._view.checkpoints += standby.checkpoints
                self._view.standby, self._view.next_leader = None, ""
            log_ms, boot_ms = standby.log_time_ms
            return led, state.take(log_ms=log_ms, boot_ms=boot_ms)

    def _recent_losses(self) -> int:
        now_ms = self._clock.boot_ms()
        return sum(now_ms - lost_ms < _RECENT_MS for lost_ms in self._lost_ms)

    def _settle(self) -> None:
        """Say to the others that this server lives, and what it does, once it has found its home."""
        standby, view = self._view.standby, self._view
        if view.signs is not None:
            view.signs.say_now()
        elif standby is not None:
            view.signs = Signs(
                self._store,
                settings=self._settings.chain,
                clock=self._clock,
                directory=standby.notes.directory,
                say=view.hint,
                looks=True,
            )
            view.signs.start()
        if standby is not None:
            log.info("this server follows %s", standby.leader_url or "nobody yet")
        self._replay.complete = True
        self._settled.set()

    def _say_now(self) -> None:
        if self._view.signs is not None:
            self._view.signs.say_now()

    async def _lead(self, led: Led, warm: Warm | None) -> None:
        """Open a broker, and serve until the lead is lost or given away."""
        self._has_led = True
        self._lost.clear()
        self._gave_away.clear()
        self._successor = None
        engine, logs = self._settings.engine, list[ShippedLog]()

        def open_log() -> ShippedLog:
            logs.append(ShippedLog.lead(self._disk, *led, segment_bytes=engine.segment_bytes))
            return logs[0]

        try:
            broker = await open_watched(open_log, clock=self._clock, settings=engine, replay=self._replay, warm=warm)
        except TenureError as error:
            if not _goes_on(led.leadership.lost) and not isinstance(error, (OutcomeUnknown, StoreRefused)):
                raise
            log.warning("this server could not begin to lead, and follows: %s", error.message)
            self._count_loss(led.leadership)
            self._tell()
            return
        await self._serve(logs[0], broker)

    async def _serve(self, shipped: ShippedLog, broker: Broker) -> None:
        leadership, loop = shipped.leadership, asyncio.get_running_loop()
        broker.when_failed(self._lost.set)

        def lose(lost: Lost) -> None:
            loop.call_soon_threadsafe(broker.give_up, lost)

        broker._upgrade.check_readers = self.check_readers
        leadership.when_released = partial(loop.call_soon_threadsafe, self._tell)
        keeper = Keeper(leadership, lose)
        keeper.start()
        log.info("this server leads epoch %d", leadership.epoch)
        self._view.log = shipped
        self._view.takeovers += 1
        self._stage.begin(broker)
        self._tell()
        self._settle()
        try:
            await self._lost.wait()
        finally:
            keeper.stop()
            await self._step_down(leadership, broker)

    async def _step_down(self, leadership: Leadership, broker: Broker) -> None:
        """Drop the broker and its state. What it had not shipped is moved aside when its directory follows again."""
        if self._view.log is not None:
            self._view.checkpoints += self._view.log.checkpoints
        lost, self._view.log = leadership.lost, None
        self._view.next_leader = self._successor or (lost.detail.get("leader", "") if lost is not None else "")
        self._giving = leadership if self._successor is not None else None
        await self._stage.end()
        await broker.close(hand_to=self._successor)
        self._giving = None
        self._gave_away.set()
        self._tell()
        if self._successor is not None or self._is_over:
            return
        if not _goes_on(lost):
            raise lost or broker.failed or NotLeader("this server leads no more")
        self._count_loss(leadership)
        self._view.fenced += 1
        log.warning("this server leads no more, and follows")

    def _count_loss(self, leadership: Leadership) -> None:
        """Count a lead that was lost before it was steady, as on a slow store; a longer wait would not have kept a
        steady one, whose leader was stopped or cut off.
        """
        if not leadership.was_steady:
            self._lost_ms.append(self._clock.boot_ms())

    # As the context's cluster

    def info(self) -> ClusterInfo:
        """Return what is known now, without asking anybody."""
        return self._view.info()

    @property
    def is_undecided(self) -> bool:
        """Whether nobody is known to lead, or this server is about to give the lead away. One that ends does not wait
        for others.
        """
        if self._is_over or self.failed is not None:
            return False
        giving = self._giving
        return not self.info().leader if giving is None else giving.lost is None

    async def decided(self) -> None:
        """Wait until that may have changed, but not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_HOLD_S):
                await self._news.wait()

    def _tell(self) -> None:
        """Let the requests go on that wait for a leader."""
        self._news.set()
        self._news = asyncio.Event()

    def families(self) -> Iterator[Family]:
        """Return the metrics of the home."""
        return self._view.families(self._store.store.metrics.requests)

    async def hand_over(self, to: str) -> None:
        """Give the lead to the server at a URL, or to any where it is empty; return once this one leads no more.

        Raises NotLeader where this server does not lead, Conflict where nobody follows closely enough to take over,
        Overloaded where the store does not say who follows.
        """
        signs, shipped = self._view.signs, self._view.log
        if shipped is None or signs is None:
            info = self.info()
            where = f": ask {info.leader}" if info.leader else ""
            raise NotLeader(f"this server does not lead{where}", leader=info.leader, epoch=info.epoch)
        self._successor = await choose_successor(shipped.leadership, signs, to, leads=lambda: self._view.log is shipped)
        self._lost.set()
        await self._gave_away.wait()

    async def check_readers(self, features: Sequence[FeatureInfo]) -> None:
        """Raise Conflict where a server that lives could not read a log with these features: it could not take over.

        Raises Overloaded where the store does not say who lives.
        """
        if self._view.signs is None:
            raise store_away()
        await check_readers(self._view.signs, features)

    def give_up_soon(self, wait_s: float) -> None:
        """Give up links whose outcome is unknown after this time: the server stops, and must not wait for ever."""
        asyncio.get_running_loop().call_later(wait_s, self._end)

    def _end(self) -> None:
        self._is_over = True

    async def close(self) -> None:
        """Give the lead away where somebody follows, and stop."""
        with suppress(Conflict, NotLeader, Overloaded):
            await self.hand_over("")
        self._is_over = True
        if self._life is not None:
            self._life.cancel()
            with suppress(asyncio.CancelledError, TenureError):
                await self._life
        if self._view.signs is not None:
            await asyncio.to_thread(self._view.signs.stop)


def _goes_on(lost: Lost | None) -> bool:
    return lost is not None and lost.code in _GOES_ON
