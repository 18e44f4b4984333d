"""Lead an epoch: the one way to write links.

A rival ends an epoch by creating its next number; that one create is the election, the fence and the end of the log. So
a leader asks nobody for permission: it creates its next link, and what it finds there says whether it still leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from time import perf_counter
from typing import TypeVar

from tenure.chain.chain import Chain, Freed
from tenure.chain.keys import link_key
from tenure.chain.link import Kind, Link, Part, Run, digest
from tenure.chain.metrics import ChainMetrics
from tenure.chain.place import Place
from tenure.chain.uplink import Uplink
from tenure.clock import Clock
from tenure.errors import Corrupt, Indeterminate, NotLeader
from tenure.objects.store import OutcomeUnknown, StoreRefused

__all__ = ["Leadership", "Lost", "challenge"]

T = TypeVar("T")
Lost = NotLeader | Indeterminate | Corrupt
"""Why a process does not lead any more: nothing happened, it is unknown, or the store is damaged."""


async def challenge(
    chain: Chain,
    place: Place,
    *,
    nonce: bytes,
    directory: bytes,
    url: str,
    clock: Clock,
    is_over: Callable[[], bool] = lambda: False,
    beats: bool = False,
    log_ms: int = 0,
) -> Leadership | None:
    """Create the fence in the next slot; return the leadership of the next epoch, or None where another was faster.

    ``nonce`` must be durable beside the log before this is called, so that a later life knows the fence as its own.
    ``is_over`` is asked while a request is under way whether to give up: then it raises OutcomeUnknown, and so does
    the leadership. One that ``beats`` promises followers a link every ``beat_ms``, and answers under a grant.
    ``log_ms`` is log time as it was followed, 0 where that is not known.

    Raises Corrupt where the store lost what this member has read, Freed where it deleted it.
    """
    if place.before is not None:  # before anything is written: it may be an old copy of the store
        await _check_there(chain, *place.before, place.digest)
    about = (chain.log_id, place.epoch + 1, place.number, place.digest, nonce, directory)
    times = (log_ms, chain.settings.beat_ms, chain.settings.grant_ms) if beats else (log_ms, 0, 0)
    fence = Link(Kind.FENCE, *about, *times, url=url)
    data = fence.pack()
    if (await chain.create(place.epoch, place.number, data, is_over=is_over)) is not None:
        return None
    await _check_fence(chain, place, data)
    return Leadership(chain, place, fence=fence, clock=clock, is_over=is_over)


async def _check_fence(chain: Chain, place: Place, data: bytes) -> None:
    """Check that a fence is stored, that it ends its epoch, and that the link before it is still the one that was read.

    All of it after the create: the store may lose something between a look and the create. The looks need no order
    among each other, and a takeover waits for them. Raises Corrupt, Freed.
    """
    looks = [_check_there(chain, place.epoch, place.number, digest(data)), chain.check_is_last(place, digest(data))]
    if place.before is not None:
        looks.append(_check_there(chain, *place.before, place.digest))
    errors = [error for error in await asyncio.gather(*looks, return_exceptions=True) if error is not None]
    for error in sorted(errors, key=lambda error: not isinstance(error, Freed)):  # links that were freed explain others
        raise error


async def _check_there(chain: Chain, epoch: int, number: int, expected: bytes) -> None:
    """Check that a slot holds the link with this digest. Raises Freed where its epoch was freed, else Corrupt."""
    data = await chain.read(epoch, number)
    if data is not None and digest(data) == expected:
        return
    if await chain.is_freed(epoch):
        raise chain.freed(epoch, number)
    key = link_key(epoch, number)
    raise Corrupt(f"{key} was there and is not, or is another: the store took back what it had stored", key=key)


async def _digest(data: bytes) -> bytes:
    return digest(data)


class Leadership:
    """One epoch, led by this process. ``ship`` is called by one caller at a time."""

    def __init__(self, chain: Chain, place: Place, *, fence: Link, clock: Clock, is_over: Callable[[], bool]) -> None:
        self.chain = chain
        #: The next slot of this epoch, which begins with the fence.
        self.place = place.after(fence, digest(fence.pack()))
        #: Set for good once this process may not lead any more.
        self.lost: Lost | None = None
        #: The last link of this epoch, or the fence that began it.
        self.last = fence
        #: Called once the link that gives the lead away is stored.
        self.when_released: Callable[[], object] = lambda: None
        self.is_over = is_over
        self.fence = fence
        self.clock = clock
        #: Log time as the first fence says it, and this machine's clock then.
        self._fenced_ms = (fence.log_ms, clock.boot_ms())
        #: Until when, by the boot clock, this process may answer what is not committed. Without beats no other process
        #: counts on it; with them there is no grant before the first link.
        self.granted_until_ms = 0.0 if fence.beat_ms else inf
        self._granted_since_ms = 0
        #: Whether a grant was renewed in time for at least a beat: the store is fast enough to be led.
        self.was_steady = False
        self.uplink = Uplink(chain.settings.beat_ms)
        self.metrics = ChainMetrics()
        self.metrics.count_fence()
        self._sent_ms = (clock.boot_ms(), clock.wall_ms())
        #: Whether the next link asks who follows to write its sign of life, and the place after the last one that did.
        self.asks = False
        self.asked: tuple[int, int] | None = None
        #: The link under way, empty where there is none.
        self._sending = b""

    @property
    def epoch(self) -> int:
        return self.place.epoch

    @property
    def beats(self) -> bool:
        """Whether followers were promised a link every ``beat_ms``."""
        return self.fence.beat_ms > 0

    @property
    def beat_wait_s(self) -> float | None:
        """How long until the next beat is due, at most, counted from the link that was sent last; None without beats.

        A machine whose clock stands still waits for a whole beat.
        """
        if not self.beats:
            return None
        left_ms = self._sent_ms[0] + self.fence.beat_ms - self.clock.boot_ms()
        return max(0, min(left_ms, self.fence.beat_ms)) / 1000

    def followed_ms(self) -> int:
        """Log time before the log is open: what the fence carries, and the time since; 0 where it does not say."""
        log_ms, boot_ms = self._fenced_ms
        return log_ms + self.clock.boot_ms() - boot_ms if log_ms else 0

    async def ship(
        self,
        runs: Sequence[Run],
        *,
        first_batch: int,
        last_batch: int,
        log_ms: int = 0,
        is_released: bool = False,
        hand_to: str = "",
        parts: Sequence[Part] = (),
    ) -> None:
        """Commit a link with these runs, which lie in ``parts`` where there are any, stored before; it is in its slot,
        byte for byte, when this returns.

        A released one is the last, and names the URL of the process that should lead next; empty for any.

        Raises NotLeader where a rival has ended the epoch: nothing of it happened then. Raises Indeterminate where the
        process ends before the outcome is known, and where this machine went back in time; Corrupt where the store did.
        """
        if self.lost is not None:
            raise self.lost
        place, had_lapse = self.place, self._had_lapse()
        asks, self.asks = self.asks and not is_released, False
        link = Link(
            *(
                Kind.DATA,
                self.chain.log_id,
                place.epoch,
                place.number,
                place.digest,
                self.fence.nonce,
                self.fence.directory,
            ),
            log_ms=log_ms,
            beat_ms=0 if is_released else self.fence.beat_ms,
            grant_ms=0 if is_released else self.fence.grant_ms,
            first_batch=first_batch,
            last_batch=last_batch,
            url=hand_to if is_released else self.fence.url,
            runs=runs,
            is_released=is_released,
            asks=asks,
            parts=parts,
        )
        data = link.pack()
        if is_released and self.beats:
            self.granted_until_ms = 0  # before it is sent: a successor does not wait for the grant to end
        sent_ms = (self.clock.boot_ms(), self.clock.wall_ms())
        is_over, started = self.metrics.counting(self.is_over), perf_counter()
        sent_digest = await self._create(data, is_over)
        size = len(data) + sum(part.length for part in parts)
        self.metrics.count_link(link, size, perf_counter() - started)
        if (had_lapse or self._had_lapse() or place.number == 0) and (
            error := await self._until_answered(lambda: self._doubt(sent_digest))
        ) is not None:
            raise self._lose(error)
        self._sent_ms, self.last = sent_ms, link._replace(runs=())
        self.place = place.after(link, sent_digest)
        if asks:
            self.asked = self.place[:2]
        if is_released:
            self.lost = NotLeader("this process has given the lead away", leader=hand_to, epoch=self.epoch)
            self.when_released()
        elif self.beats:
            self._grant(sent_ms[0])

    def ask(self) -> None:
        """Have the next link ask for signs of life; ``asked`` is where that link was, once it is stored."""
        self.asks, self.asked = True, None

    def _grant(self, sent_ms: int) -> None:
        """Begin a grant, or prolong the one that still runs, by a link that was first sent at ``sent_ms``."""
        if self.clock.boot_ms() >= self.granted_until_ms:
            self._granted_since_ms = sent_ms
        elif sent_ms - self._granted_since_ms >= self.chain.settings.beat_ms:
            self.was_steady = True
        self.granted_until_ms = sent_ms + self.fence.grant_ms  # as its links say: others wait for no more

    async def _create(self, data: bytes, is_over: Callable[[], bool]) -> bytes:
        """Create a link in the next slot, and return its digest. Raises why this process lost the lead.

        The digest of a large link takes longer than its way to the store's client: so it is made while the store works.
        """
        place, self._sending = self.place, data
        began_s = asyncio.get_running_loop().time()
        least = self.uplink.bytes_per_s_min
        creating = self.chain.create(place.epoch, place.number, data, is_over=is_over, bytes_per_s_min=least)
        found, sent_digest = await asyncio.gather(creating, _digest(data))  # in this order
        self.uplink.measured(len(data), asyncio.get_running_loop().time() - began_s)
        if found is not None:
            raise self._lose(await self._until_answered(partial(self._verdict, found)))
        return sent_digest

    def _lose(self, error: Lost) -> Lost:
        """Record why this process does not lead any more, and return it; the first reason stays."""
        if self.lost is None:
            self.lost = error
            self.metrics.fenced += isinstance(error, NotLeader)
        return self.lost

    async def renew(self, nonce: bytes, *, log_ms: int = 0) -> None:
        """End this epoch and begin the next one, led by this process too. ``nonce`` is durable already.

        Raises as ``ship``.
        """
        if self.lost is not None:
            raise self.lost
        place = self.place
        about = (self.chain.log_id, place.epoch + 1, place.number, place.digest, nonce, self.fence.directory)
        fence = Link(Kind.FENCE, *about, log_ms, self.fence.beat_ms, self.fence.grant_ms, url=self.fence.url)
        data = fence.pack()
        sent_digest = await self._create(data, self.is_over)
        try:
            await self._until_answered(lambda: _check_fence(self.chain, place, data))
        except Freed as error:
            raise self._lose(self._left_behind()) from error
        except Corrupt as error:
            raise self._lose(error) from error
        self.metrics.count_fence()
        self.fence = self.last = fence
        self.place = place.after(fence, sent_digest)

    async def prove(self) -> None:
        """Look whether the last link is still there and the next slot is still free; ``lost`` is set where not.

        Raises the error that it is set to.
        """
        found = await self._check_last() or await self._check_next()
        if found is not None:
            self._lose(found)
        if self.lost is not None:
            raise self.lost

    async def _check_last(self) -> Lost | None:
        place = self.place
        error = await self._missing(place.before, place.digest)
        return error if place == self.place else None  # a link was shipped meanwhile, which proves more

    async def _missing(self, slot: tuple[int, int] | None, expected: bytes) -> Lost | None:
        """Return what it means that a link is not in its slot, None where it is."""
        assert slot is not None, "an epoch begins with a fence"
        try:
            await _check_there(self.chain, *slot, expected)
        except Freed:
            return self._left_behind()
        except Corrupt as error:
            return error
        return None

    async def _check_next(self) -> Lost | None:
        place = self.place
        data = await self.chain.read(place.epoch, place.number)
        if data is not None and data == self._sending:  # it is stored, and the reply is under way
            return await self._check_behind(place)
        if data is None or place != self.place:
            return None
        return await self._verdict(data)

    async def _check_behind(self, place: Place) -> Lost | None:
        """Return what a link behind the one under way means: that one is stored, but its writer does not know it."""
        data = await self.chain.read(place.epoch, place.number + 1)
        if data is None or place != self.place:
            return None
        link = Link.unpack(data, link_key(place.epoch, place.number + 1))
        return Indeterminate(
            "another process has taken over this log while a link was under way: whether the last writes happened is "
            "unknown. Repeat them there with the same keys",
            code="overtaken",
            leader=link.url,
            epoch=link.epoch,
        )

    def _had_lapse(self) -> bool:
        """Return whether so much time passed since the last link that this epoch may be closed and freed by now."""
        boot_ms, wall_ms = self._sent_ms
        lapse_ms = self.chain.settings.lapse_ms
        return self.clock.boot_ms() - boot_ms > lapse_ms or not 0 <= self.clock.wall_ms() - wall_ms <= lapse_ms

    async def _until_answered(self, look: Callable[[], Awaitable[T]]) -> T:
        """Look until the store answers: what is stored, or what it means, is known only then.

        Raises OutcomeUnknown once this process ends, and what the look finds.
        """
        attempt = 0
        while True:
            try:
                return await look()
            except (OutcomeUnknown, StoreRefused) as error:
                if self.is_over() or error.code == "store_failed":
                    raise OutcomeUnknown(f"the last link may be stored: {error.message}") from error
            await self.chain.store.pause(attempt, self.chain.settings.backoff_ms_max)
            attempt += 1

    async def _doubt(self, sent_digest: bytes) -> Lost | None:
        """Return why the link that was just created does not count, None where it does."""
        place = self.place
        missing, is_freed, missing_before = await asyncio.gather(
            self._missing((place.epoch, place.number), sent_digest),
            self.chain.is_freed(place.epoch),
            self._missing(place.before, place.digest),
        )
        return missing or (self._left_behind() if is_freed else missing_before)

    def _left_behind(self) -> Indeterminate:
        return Indeterminate(
            f"epoch {self.epoch} ended and was cleared away while this process stood still: it leads no more, and "
            "whether the last writes happened is unknown. Repeat them with the same keys",
            code="left_behind",
            epoch=self.epoch,
        )

    async def _verdict(self, data: bytes) -> Lost:
        """Return what it means that the next slot holds other bytes than this process's."""
        place = self.place
        key = link_key(place.epoch, place.number)
        try:
            link = Link.unpack(data, key)
        except Corrupt as error:
            return error
        if not link.is_fence or link.directory == self.fence.directory:
            return Indeterminate(
                f"{key} holds a link of this directory's own: this machine went back in time, perhaps to a snapshot. "
                "Whether the last writes happened is unknown. Start it again",
                code="went_back",
                epoch=place.epoch,
            )
        if await self.chain.is_freed(place.epoch):
            return self._left_behind()
        who = f" ({link.url})" if link.url else ""
        return NotLeader(
            f"another process{who} has taken over this log: nothing of this call happened. Repeat it there",
            leader=link.url,
            epoch=link.epoch,
        )
