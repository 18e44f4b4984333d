"""A standby: it follows the chain into its directory, warm, until it may lead.

It reads the next slots again and again, writes the same bytes to the same places, and has them folded. When nothing
has come for so long that every grant of the leader is over, or when the leader gave up the lead, it ends the epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, Protocol

from tenure.chain.catch_up import CatchUp
from tenure.chain.chain import Chain, Freed
from tenure.chain.hint import Hint, read_hint
from tenure.chain.keys import link_key
from tenure.chain.link import Link
from tenure.chain.member import Led, Member
from tenure.chain.notes import Notes, save_notes
from tenure.chain.place import Step
from tenure.chain.silence import Silence
from tenure.errors import TenureError
from tenure.objects.store import OutcomeUnknown, StoreRefused

__all__ = ["Follower", "Standby"]

logger = logging.getLogger("tenure.chain")

_LOOK_MS: Final = 1_000
_DOUBT_BEATS: Final = 2


class Follower(Protocol):
    """What becomes of the log while it is followed. Its methods may raise OSError and Corrupt."""

    def advance(self, segment: int, offset: int) -> None:
        """Take note that the files hold the log up to here."""

    def begin_anew(self) -> None:
        """Take note that the files became others."""

    def drop_segments(self) -> None:
        """Remove what the log declares dropped: the notes of this directory are beyond it."""

    def save_if_due(self) -> None:
        """Write a checkpoint, perhaps: the files are durable up to the last ``advance``."""


class Standby:
    """One directory that follows. ``run`` is called once; the rest says how it goes.

    ``is_first`` says that this process has not led yet: then a lead that this directory had is that of a dead process.
    ``losses`` are leaderships that it lost lately.
    """

    def __init__(
        self,
        member: Member,
        follower: Follower,
        *,
        is_first: bool = True,
        losses: int = 0,
        random: Random | None = None,
        following: Callable[[], object] = lambda: None,
    ) -> None:
        self._member = member
        self._follower = follower
        self._following = following
        self._clock = member.clock
        self._settings = member.settings
        self._silence = Silence(member.settings, member.clock, url=member.url, losses=losses, random=random or Random())
        self._catching_up = CatchUp(
            member.disk, save=partial(save_notes, member.disk), passed=self._hear, begun_anew=follower.begin_anew
        )
        self._is_first = is_first
        self._hint: tuple[Hint | None, int] = (None, 0)
        self._noted_ms = 0
        self._at_end_ms: int | None = None
        self._links = 0
        #: How far it went, once it has found its home.
        self.notes: Notes
        #: The links that the last look brought: how far behind it was.
        self.lag_links = 0
        #: Log time at the newest link that says it, and this machine's clock when that link came.
        self.log_time_ms = (0, 0)

    @property
    def leader_url(self) -> str:
        """Where clients reach the leader, or whom it named as its successor; empty where that is not known.

        A leader that has missed beats may be dead: a client that is sent there would wait for nothing.
        """
        last = self._silence.last
        if last is None or (last.beat_ms and self._silence.lasted_ms > _DOUBT_BEATS * last.beat_ms):
            return ""
        return last.url

    @property
    def lag_ms(self) -> int | None:
        """How long ago this directory was at the end of the chain; None where it never was."""
        return None if self._at_end_ms is None else self._clock.boot_ms() - self._at_end_ms

    @property
    def diverged_bytes(self) -> int:
        """Bytes of this directory that were moved aside."""
        return self._catching_up.diverged_bytes

    async def run(self) -> Led:
        """Follow until this directory leads. Raises Conflict, Corrupt, StoreRefused at the start, as `Member.lead`."""
        chain, self.notes = await self._member.find()
        try:
            await self._catch_up(chain)
            is_time = self._may_lead_at_once()
            while True:
                if is_time and (led := await self._take_over(chain)) is not None:
                    return led
                await asyncio.sleep(self._settings.poll_ms / 1000)
                await self._look(chain)
                is_time = await self._is_time()
        finally:
            self._catching_up.close()

    async def _catch_up(self, chain: Chain) -> None:
        """Come to the end of the chain for the first time. The wait for silence begins only then."""
        self.notes = await self._catching_up.run(chain, self.notes)
        before = self.notes.place.before
        if self._silence.last is None and before is not None and (data := await chain.read(*before)) is not None:
            self._silence.last = Link.unpack(data, link_key(*before))
        self._fold()
        self._silence.begin()
        self._noted_ms = self._at_end_ms = self._clock.boot_ms()
        self._following()

    def _may_lead_at_once(self) -> bool:
        """Return whether the last leader is dead for sure: it was this directory, and its lock is held now.

        One that did not beat held no grant, so that it may also have been elsewhere.
        """
        notes = self.notes
        is_dead = notes.was_led_at(self._member.whereabouts) or (notes.may_lead_at_once and not self._beats())
        return self._is_first and is_dead and not notes.is_released

    def _beats(self) -> bool:
        return self._silence.last is not None and self._silence.last.beat_ms > 0

    def _hear(self, step: Step) -> None:
        link = step.link
        self._silence.hear(link)
        self._links += 1
        if link.log_ms:
            self.log_time_ms = (link.log_ms, self._clock.boot_ms())

    async def _look(self, chain: Chain) -> None:
        """Read what came since; where the store or the disk does not let it, the next look tries again.

        So it does where links were freed and no checkpoint beyond them is listed yet. Only damage is raised.
        """
        self._links = 0
        try:
            self.notes = await self._catching_up.go_on(chain, self.notes, proves_end=False)
            self._fold()
            self._note_if_due()
        except (OutcomeUnknown, StoreRefused, Freed, OSError) as error:
            _warn("follow its leader", error)
            self._silence.begin()  # nothing was seen, which is not the same as silence
            return
        self.lag_links, self._at_end_ms = self._links, self._clock.boot_ms()

    def _fold(self) -> None:
        end = self.notes.place.end
        self._follower.advance(end.segment, end.offset)

    def _note_if_due(self) -> None:
        now_ms = self._clock.boot_ms()
        if now_ms - self._noted_ms >= self._settings.place_ms:
            self._noted_ms = now_ms
            self._catching_up.note(self.notes)
            self._follower.drop_segments()
            self._follower.save_if_due()

    async def _is_time(self) -> bool:
        """Return whether the leader was silent for long enough, or gave up the lead."""
        is_released = self.notes.is_released
        if self._beats() or is_released:
            return self._silence.is_over(is_released=is_released)
        return await self._is_silent()

    async def _is_silent(self) -> bool:
        """Return whether a leader that does not beat has written neither a link nor a hint for long enough."""
        hint, looked_ms = self._hint
        now_ms = self._clock.boot_ms()
        if now_ms - looked_ms >= min(_LOOK_MS, self._settings.silence_ms):
            with suppress(OutcomeUnknown, StoreRefused):
                found = await read_hint(self._member.store, self.notes.leader_directory)
                if found != hint:
                    self._silence.begin()
                self._hint = (found, now_ms)
        return self._silence.lasted_ms >= self._settings.silence_ms

    async def _take_over(self, chain: Chain) -> Led | None:
        """End the epoch, at the proven end of the chain; None where something came, or another was faster."""
        place = self.notes.place
        try:
            self.notes = await self._catching_up.go_on(chain, self.notes)
            self._fold()
            if self.notes.place != place:
                return None
            self._catching_up.note(self.notes)
            led = await self._member.challenge(chain, self.notes)
        except (OutcomeUnknown, StoreRefused, Freed, OSError) as error:
            _warn("take over", error)
            return None
        if led is not None:
            led.leadership.metrics.diverged_bytes = self.diverged_bytes
        return led


def _warn(what: str, error: TenureError | OSError) -> None:
    why = error.message if isinstance(error, TenureError) else error
    logger.warning("this standby cannot %s; it tries on: %s", what, why)
