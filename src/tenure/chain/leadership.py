"""Lead an epoch: the one way to write links.

A rival ends an epoch by creating its next number; that one create is the election, the fence and the end of the log. So
a leader asks nobody for permission: it creates its next link, and what it finds there says whether it still leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from tenure.chain.chain import Chain, Freed
from tenure.chain.keys import link_key
from tenure.chain.link import NO_DIGEST, Kind, Link, Run, digest
from tenure.chain.metrics import ChainMetrics
from tenure.chain.place import Place
from tenure.clock import Clock
from tenure.errors import Corrupt, Indeterminate, NotLeader

__all__ = ["Leadership", "Lost", "challenge"]

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
) -> Leadership | None:
    """Create the fence in the next slot; return the leadership of the next epoch, or None where another was faster.

    ``nonce`` must be durable beside the log before this is called, so that a later life knows the fence as its own.
    ``is_over`` is asked while a request is under way whether to give up: then it raises OutcomeUnknown, and so does
    the leadership. Raises Corrupt where the store lost what this member has read, Freed where it deleted it.
    """
    if place.before is not None:  # before anything is written: it may be an old copy of the store
        await _check_there(chain, *place.before, place.digest)
    about = (chain.log_id, place.epoch + 1, place.number, place.digest, nonce, directory)
    fence = Link(Kind.FENCE, *about, url=url)
    data = fence.pack()
    if (await chain.create(place.epoch, place.number, data, is_over=is_over)) is not None:
        return None
    await _check_fence(chain, place, data)
    return Leadership(chain, place, fence=fence, clock=clock, is_over=is_over)


async def _check_fence(chain: Chain, place: Place, data: bytes) -> None:
    """Check that a fence is stored, that it ends its epoch, and that the link before it is still the one that was read.

    All of it after the create: the store may lose something between a look and the create. Raises Corrupt, Freed.
    """
    await _check_there(chain, place.epoch, place.number, digest(data))
    await chain.check_is_last(place, digest(data))
    if place.before is not None:
        await _check_there(chain, *place.before, place.digest)


async def _check_there(chain: Chain, epoch: int, number: int, expected: bytes) -> None:
    """Check that a slot holds the link with this digest. Raises Freed where its epoch was freed, else Corrupt."""
    data = await chain.read(epoch, number)
    if data is not None and digest(data) == expected:
        return
    if await chain.is_freed(epoch):
        raise chain.freed(epoch, number)
    key = link_key(epoch, number)
    raise Corrupt(f"{key} was there and is not, or is another: the store took back what it had stored", key=key)


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
        self.is_over = is_over
        self.fence = fence
        self.clock = clock
        self.metrics = ChainMetrics()
        self._sent_ms = (clock.boot_ms(), clock.wall_ms())
        #: The digest of the link under way.
        self._sending = NO_DIGEST

    @property
    def epoch(self) -> int:
        return self.place.epoch

    async def ship(
        self, runs: Sequence[Run], *, first_batch: int, last_batch: int, log_ms: int = 0, is_released: bool = False
    ) -> None:
        """Commit a link with these runs; it is in its slot, byte for byte, when this returns.

        Raises NotLeader where a rival has ended the epoch: nothing of it happened then. Raises Indeterminate where the
        process ends before the outcome is known, and where this machine went back in time; Corrupt where the store did.
        """
        if self.lost is not None:
            raise self.lost
        place, had_lapse = self.place, self._had_lapse()
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
            first_batch=first_batch,
            last_batch=last_batch,
            url=self.fence.url,
            runs=runs,
            is_released=is_released,
        )
        data = link.pack()
        self._sending = digest(data)
        sent_ms = (self.clock.boot_ms(), self.clock.wall_ms())
        is_over, started = self.metrics.counting(self.is_over), perf_counter()
        found = await self.chain.create(place.epoch, place.number, data, is_over=is_over)
        if found is not None:
            self.lost = await self._verdict(found)
            raise self.lost
        self.metrics.count_link(len(data), perf_counter() - started)
        if (had_lapse or place.number == 0) and (error := await self._doubt()) is not None:
            self.lost = error
            raise error
        self._sent_ms, self.last = sent_ms, link._replace(runs=())
        self.place = place.after(link, self._sending)
        if is_released:
            self.lost = NotLeader("this process has given the lead away", epoch=self.epoch)

    async def renew(self, nonce: bytes) -> None:
        """End this epoch and begin the next one, led by this process too. ``nonce`` is durable already.

        Raises as ``ship``, and Corrupt or Freed where the fence does not end the epoch.
        """
        if self.lost is not None:
            raise self.lost
        place = self.place
        about = (self.chain.log_id, place.epoch + 1, place.number, place.digest, nonce, self.fence.directory)
        fence = Link(Kind.FENCE, *about, url=self.fence.url)
        data = fence.pack()
        self._sending = digest(data)
        found = await self.chain.create(place.epoch, place.number, data, is_over=self.is_over)
        if found is not None:
            self.lost = await self._verdict(found)
            raise self.lost
        await _check_fence(self.chain, place, data)
        self.fence = self.last = fence
        self.place = place.after(fence, self._sending)

    async def prove(self) -> None:
        """Look whether the last link is still there and the next slot is still free; ``lost`` is set where not.

        Raises the error that it is set to.
        """
        found = await self._check_last() or await self._check_next()
        if self.lost is None:
            self.lost = found
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
        if data is None or digest(data) == self._sending or place != self.place:
            return None
        return await self._verdict(data)

    def _had_lapse(self) -> bool:
        """Return whether so much time passed since the last link that this epoch may be closed and freed by now."""
        boot_ms, wall_ms = self._sent_ms
        lapse_ms = self.chain.settings.lapse_ms
        return self.clock.boot_ms() - boot_ms > lapse_ms or not 0 <= self.clock.wall_ms() - wall_ms <= lapse_ms

    async def _doubt(self) -> Lost | None:
        """Return why the link that was just created does not count, None where it does."""
        place = self.place
        if (error := await self._missing((place.epoch, place.number), self._sending)) is not None:
            return error
        if await self.chain.is_freed(place.epoch):
            return self._left_behind()
        return await self._missing(place.before, place.digest)

    def _left_behind(self) -> Indeterminate:
        return Indeterminate(
            f"epoch {self.epoch} ended and was cleared away while this process stood still: it cannot go on, and "
            "whether the last writes happened is unknown. Start it again",
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
