"""A member of a home: it brings the local copy up to the end of the chain, then ends the epoch before and leads.

The steps may be cut short at any call and simply run again. The order is what makes it safe: the copy is durable before
the place is noted, and the nonce is noted before the fence is sent.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import NamedTuple

from tenure.chain.catch_up import CatchUp
from tenure.chain.chain import Chain
from tenure.chain.hint import read_hint
from tenure.chain.home import HomeFacts, create_home, find_home
from tenure.chain.keys import link_key
from tenure.chain.leadership import Leadership, challenge
from tenure.chain.link import Link
from tenure.chain.notes import Notes, begin_notes, load_notes, save_notes
from tenure.chain.place import Step
from tenure.chain.settings import ChainSettings
from tenure.chain.silence import DRIFT
from tenure.clock import Clock
from tenure.errors import Conflict
from tenure.log.disk import Disk
from tenure.log.segment import segment_numbers
from tenure.objects.probe import ROUNDS, probe
from tenure.objects.retrying import RetryingStore

__all__ = ["Led", "Member"]

_NONCE_BYTES = 16
_LOG_ID_BYTES = 16
_LOOK_MS = 1_000


class Led(NamedTuple):
    """What winning gives: the leadership, and the notes of the directory."""

    leadership: Leadership
    notes: Notes


class Member:
    """A locked directory that wants to lead a home; ``url`` is where clients reach its process.

    A member that ``beats`` shares the home with others: its links say when the next one comes.
    """

    def __init__(
        self,
        store: RetryingStore,
        disk: Disk,
        *,
        settings: ChainSettings,
        clock: Clock,
        url: str,
        is_over: Callable[[], bool],
        beats: bool = False,
    ) -> None:
        self.store = store
        self.disk = disk
        self.settings = settings
        self.clock = clock
        self.url = url
        #: The boot of the machine and the file of the lock: no copy of this directory has both.
        self.whereabouts = f"{clock.boot_id} {disk.identity()}"
        self._is_over = is_over
        self._beats = beats

    async def lead(self) -> Led:
        """Lead alone: return the lead of a new epoch; the local segments then hold the chain, perhaps a tail behind it.

        Raises Conflict where another directory leads and lives, where the prefix or the directory holds another log,
        or where the directory holds a log that is in no home yet; Corrupt where the chain or the copy is damaged;
        StoreRefused where the store does not keep create-if-absent.
        """
        chain, notes = await self.find()
        catching_up = CatchUp(self.disk, save=partial(save_notes, self.disk))
        while True:
            notes = await catching_up.run(chain, notes)
            if not notes.may_lead_at_once:
                await self._wait_for_silence(chain, notes)
            led = await self.challenge(chain, notes)
            if led is not None:
                led.leadership.metrics.diverged_bytes = catching_up.diverged_bytes
                return led

    async def challenge(self, chain: Chain, notes: Notes, *, log_ms: int = 0) -> Led | None:
        """End the epoch that was read to its end, and lead the next one; None where another was faster.

        Raises as `tenure.chain.leadership.challenge`, and OSError.
        """
        nonce = secrets.token_bytes(_NONCE_BYTES)
        notes = notes.with_nonce(nonce, whereabouts=self.whereabouts)
        save_notes(self.disk, notes)
        leadership = await challenge(
            chain,
            notes.place,
            nonce=nonce,
            directory=bytes.fromhex(notes.directory),
            url=self.url,
            clock=self.clock,
            is_over=self._is_over,
            beats=self._beats,
            log_ms=log_ms,
        )
        if leadership is None:
            return None
        notes = notes.after(Step(leadership.fence, notes.place, leadership.place))
        save_notes(self.disk, notes)
        return Led(leadership, notes)

    async def find(self) -> tuple[Chain, Notes]:
        """Return the chain and the notes of this directory; create home and notes where there are none.

        Raises as ``lead``.
        """
        notes, facts = await self._find()
        return Chain(self.store, bytes.fromhex(facts.log_id), self.settings), notes

    async def _find(self) -> tuple[Notes, HomeFacts]:
        notes, has_log = load_notes(self.disk), bool(segment_numbers(self.disk))
        if has_log and notes is None:
            raise Conflict(
                "this directory holds a log that lives in no home: bring it there with `tenure home adopt`, "
                "or serve with an empty directory",
                code="not_adopted",
            )
        url = self.store.store.url
        facts = await find_home(self.store)
        await probe(self.store, rounds=ROUNDS if facts is None else 1)
        while facts is None:
            if notes is not None and has_log:
                raise Conflict(
                    f"the home of this directory was {notes.home}, and there is none under {url}: check the address; "
                    "if the home is lost, `tenure home adopt` makes a new one of this directory",
                    code="home_missing",
                )
            notes = await self._create()
            facts = await find_home(self.store)
        if notes is None or (notes.log_id != facts.log_id and not has_log):
            notes = begin_notes(facts, self.store.store.url)
            save_notes(self.disk, notes)  # before the first segment: a start that is cut short must know its home
        if notes.log_id != facts.log_id:
            message = f"this directory is a copy of another log than {url} holds: use another directory"
            raise Conflict(message, code="foreign_log")
        return notes, facts

    async def _create(self) -> Notes:
        """Create a home; another process may be faster, and then its home is the one."""
        log_id, nonce = secrets.token_bytes(_LOG_ID_BYTES), secrets.token_bytes(_NONCE_BYTES)
        facts = HomeFacts(log_id=log_id.hex())
        notes = begin_notes(facts, self.store.store.url).with_nonce(nonce, whereabouts=self.whereabouts)
        save_notes(self.disk, notes)
        await create_home(self.store, log_id, epoch=0, nonce=nonce, url=self.url, now_ms=self.clock.wall_ms())
        return notes

    async def _wait_for_silence(self, chain: Chain, notes: Notes) -> None:
        """Wait until another directory's leader has been silent for long enough. Raises Conflict where it lives."""
        place, first = notes.place, await read_hint(self.store, notes.leader_directory)
        until_ms = self.clock.boot_ms() + max(self.settings.silence_ms, await self._grant_ms(chain, notes))
        while self.clock.boot_ms() < until_ms:
            await asyncio.sleep(min(_LOOK_MS, self.settings.silence_ms) / 1000)
            is_free = await chain.read(place.epoch, place.number) is None
            hint = await read_hint(self.store, notes.leader_directory)
            if not is_free or (hint is not None and hint != first):  # others remove the hint of one that is dead
                who = first.url if first is not None and first.url else "another process"
                raise Conflict(
                    f"{who} leads this home and lives: stop it first, or give this one a home of its own",
                    code="home_led",
                    leader=first.url if first is not None else "",
                )

    async def _grant_ms(self, chain: Chain, notes: Notes) -> int:
        """Return how long the newest link lets its writer answer what is not committed."""
        before = notes.place.before
        data = None if before is None else await chain.read(*before)
        link = None if before is None or data is None else Link.unpack(data, link_key(*before))
        return 0 if link is None else ceil(link.grant_ms * DRIFT)
