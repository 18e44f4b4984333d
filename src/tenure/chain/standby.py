"""A standby: it follows the chain into its directory, warm, until it may lead.

It reads the next slots again and again, writes the same bytes to the same places, and has them folded. When nothing
has come for so long that every grant of the leader is over, or when the leader gave up the lead, it ends the epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, Protocol

from tenure.chain.catch_up import CatchUp
from tenure.chain.chain import Chain, Freed
from tenure.chain.hint import Hint, read_hint
from tenure.chain.home_upkeep import StandbyUpkeep
from tenure.chain.keys import link_key
from tenure.chain.link import Link
from tenure.chain.member import Led, Member
from tenure.chain.notes import Notes, save_notes
from tenure.chain.place import Step
from tenure.chain.silence import Silence
from tenure.errors import Corrupt, TenureError
from tenure.log.features import FEATURES, Feature
from tenure.log.interface import Position
from tenure.log.opening import peek_features
from tenure.objects.store import ObjectMissing, OutcomeUnknown, StoreFull, StoreRefused

__all__ = ["Follower", "Standby"]

logger = logging.getLogger("tenure.chain")

_LOOK_MS: Final = 1_000
_DOUBT_BEATS: Final = 2
_BUSY_RATIO: Final = 4
"""How much more often than every ``poll_ms`` it looks while records come."""
_TOO_OLD: Final = {"unknown_feature", "format_too_new"}
"""What a newer leader writes, and this version cannot read: no damage, and no reason to end before it is upgraded."""
_STAMP_MS: Final = 1_000
"""Some stores tell the time of an object in whole seconds."""


class Follower(Protocol):
    """What becomes of the log while it is followed. Its methods may raise OSError and Corrupt."""

    def advance(self, segment: int, offset: int) -> None:
        """Take note that the files hold the log up to here."""

    def begin_anew(self) -> None:
        """Take note that the files became others."""

    def drop_segments(self) -> None:
        """Remove what the log declares dropped: the notes of this directory are beyond it."""

    def save_if_due(self) -> Position | None:
        """Write a checkpoint, perhaps, and return its position: the files are durable up to the last ``advance``."""


class Standby:
    """One directory that follows. ``run`` is called once; the rest says how it goes.

    ``is_first`` says that this process has not led yet: then a lead that this directory had is that of a dead process.
    ``losses`` are leaderships that it lost lately before they were steady. ``following`` is called once, at the end of
    the chain, ``leader_found`` when a link comes while nobody was known to lead, and ``asked`` after a link that asks
    for signs of life, once ``notes`` are beyond it.
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
        leader_found: Callable[[], object] = lambda: None,
        asked: Callable[[], object] = lambda: None,
        known: Sequence[Feature] = FEATURES,
    ) -> None:
        self._member = member
        self._follower = follower
        self._following = following
        self._leader_found = leader_found
        self._asked = asked
        self._was_asked = False
        self._known = known
        self._read_segment = 0
        #: Why this version cannot read what its leader writes, and will not take over; empty where it can.
        self.trouble = ""
        self._clock = member.clock
        self._settings = member.settings
        self._random = random or Random()
        self._silence = Silence(member.settings, member.clock, url=member.url, losses=losses, random=self._random)
        self._catching_up = CatchUp(
            member.disk, save=partial(save_notes, member.disk), passed=self._hear, begun_anew=self._begin_anew
        )
        self._is_first = is_first
        self._hint: tuple[Hint | None, int] = (None, 0)
        self._noted_ms = 0
        self._at_end_ms: int | None = None
        self._links = 0
        self._busy_until_ms = 0
        self._upkeep: StandbyUpkeep | None = None
        #: How far it went, once it has found its home.
        self.notes: Notes
        #: The links that the last look brought: how far behind it was.
        self.lag_links = 0
        #: Log time at the newest link that says it, and this machine's clock at that time.
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

    @property
    def checkpoints(self) -> int:
        """How many checkpoints this directory brought to the home while it followed."""
        return 0 if self._upkeep is None else self._upkeep.stored

    async def run(self) -> Led:
        """Follow until this directory leads. Raises Conflict, Corrupt, StoreRefused at the start, as `Member.lead`."""
        member = self._member
        chain, self.notes = await member.find()
        batch = self.notes.place.end.batch
        self._upkeep = StandbyUpkeep(member.disk, chain, url=member.url, batch=batch, random=self._random)
        try:
            await self._catch_up(chain)
            is_time = self._may_lead_at_once()
            while True:
                if is_time and (led := await self._take_over(chain)) is not None:
                    return led
                await asyncio.sleep(self._pause_ms() / 1000)
                await self._look(chain)
                is_time = not self.trouble and await self._is_time()
        finally:
            self._upkeep.stop()
            self._catching_up.close()

    async def _catch_up(self, chain: Chain) -> None:
        """Come to the end of the chain for the first time. The wait for silence begins only then."""
        self.notes = await self._catching_up.run(chain, self.notes)
        await self._date_last(chain)
        self._fold()
        self._silence.begin()
        self._noted_ms = self._at_end_ms = self._clock.boot_ms()
        self._following()

    async def _date_last(self, chain: Chain) -> None:
        """Learn the last link, where it was read before this process began, and how long ago it was stored.

        The store's clock is the only one that all members share: their wall clocks may differ by minutes, and a lease
        must not end early by that. Where it cannot be asked, no time is taken to have passed.
        """
        before = self.notes.place.before
        if before is None:
            return
        if self._silence.last is None and (data := await chain.read(*before)) is not None:
            self._silence.last = Link.unpack(data, link_key(*before))
        if self._silence.last is not None and self._silence.last.log_ms:
            age_ms = await self._age_ms(chain, link_key(*before))
            self.log_time_ms = (self._silence.last.log_ms, self._clock.boot_ms() - age_ms)

    async def _age_ms(self, chain: Chain, key: str) -> int:
        with suppress(ObjectMissing, OutcomeUnknown, StoreFull, StoreRefused):
            return max(0, await chain.store.age_ms(key) - _STAMP_MS)
        return 0

    @property
    def _now_ms(self) -> int:
        """Log time as it was followed, 0 where that is not known."""
        log_ms, boot_ms = self.log_time_ms
        return log_ms + self._clock.boot_ms() - boot_ms if log_ms else 0

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
        link, knew_leader = step.link, bool(self.leader_url)
        self._silence.hear(link)
        self._links += 1
        self._was_asked |= link.asks
        if link.log_ms:
            self.log_time_ms = (link.log_ms, self._clock.boot_ms())
        if link.runs:
            self._busy_until_ms = self._clock.boot_ms() + _BUSY_RATIO * self._settings.poll_ms
        if not knew_leader:
            self._leader_found()

    def _pause_ms(self) -> float:
        """Return the wait before the next look: shorter while records come, because a lead that is given up then keeps
        callers waiting; and never beyond the moment at which the leader has been silent for long enough.
        """
        is_busy = self._clock.boot_ms() < self._busy_until_ms
        pause_ms = self._settings.poll_ms / (_BUSY_RATIO if is_busy else 1)
        if self._beats() and (left_ms := self._silence.left_ms(is_released=self.notes.is_released)) > 0:
            return min(pause_ms, left_ms)
        return pause_ms

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
        except Corrupt as error:
            if error.code not in _TOO_OLD:
                raise
            self._give_up_reading(error)
        self.lag_links, self._at_end_ms = self._links, self._clock.boot_ms()
        if self._was_asked:
            self._was_asked = False
            self._asked()

    def _fold(self) -> None:
        """Have the log folded up to here. Raises Corrupt where it has a feature that this version does not know.

        The list of features is the first frame of a segment: a look at each tells before anything else is decoded.
        """
        end = self.notes.place.end
        if self.trouble:
            return
        if end.segment != self._read_segment:
            peek_features(self._member.disk, known=self._known)
            self._read_segment = end.segment
        self._follower.advance(end.segment, end.offset)

    def _give_up_reading(self, error: Corrupt) -> None:
        """Go on to store what comes, without reading it: this server is of no use as a leader until it is upgraded."""
        if not self.trouble:
            self.trouble = error.message
            logger.error("this server cannot read what its leader writes, and will not take over: %s", error.message)
            self._asked()

    def _begin_anew(self) -> None:
        self._follower.begin_anew()
        if self._upkeep is not None:
            self._upkeep.begin_anew()

    def _note_if_due(self) -> None:
        """Note the place now and then; not between a lead that was given up and its takeover, which notes it too."""
        now_ms = self._clock.boot_ms()
        if now_ms - self._noted_ms >= self._settings.place_ms and not self.notes.is_released:
            self._noted_ms = now_ms
            self._catching_up.note(self.notes)
            if self._upkeep is not None and not self._upkeep.is_saving and not self.trouble:
                self._drop_and_save(self._upkeep)

    def _drop_and_save(self, upkeep: StandbyUpkeep) -> None:
        """Drop what the log dropped, and bring a checkpoint home where one is due.

        Not while another is on its way: a log whose segments come and go faster than an upload would never have one.
        """
        self._follower.drop_segments()
        if (position := self._follower.save_if_due()) is not None:
            upkeep.start(position, self.notes)

    async def _is_time(self) -> bool:
        """Return whether the leader was silent for long enough, or gave up the lead."""
        is_released = self.notes.is_released
        if self._beats() or is_released:
            return self._silence.left_ms(is_released=is_released) == 0
        return await self._is_silent()

    async def _is_silent(self) -> bool:
        """Return whether a leader that does not beat has written neither a link nor a hint for long enough."""
        hint, looked_ms = self._hint
        now_ms = self._clock.boot_ms()
        if now_ms - looked_ms >= min(_LOOK_MS, self._settings.silence_ms):
            with suppress(OutcomeUnknown, StoreRefused):
                found = await read_hint(self._member.store, self.notes.leader_directory)
                if found is not None and found != hint:  # others remove the hint of one that is dead
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
            self._catching_up.sync()
            led = await self._member.challenge(chain, self.notes, log_ms=self._now_ms)
        except (OutcomeUnknown, StoreRefused, Freed, OSError) as error:
            _warn("take over", error)
            return None
        if led is not None:
            led.leadership.metrics.diverged_bytes = self.diverged_bytes
        return led


def _warn(what: str, error: TenureError | OSError) -> None:
    why = error.message if isinstance(error, TenureError) else error
    logger.warning("this standby cannot %s; it tries on: %s", what, why)
