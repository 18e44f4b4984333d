"""Become the leader of a home: bring the local copy up to the end of the chain, then end the epoch before.

The steps may be cut short at any call and simply run again. The order is what makes it safe: the copy is durable before
the place is noted, and the nonce is noted before the fence is sent.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial

from tenure.chain.catch_up import CatchUp
from tenure.chain.chain import Chain
from tenure.chain.hint import read_hint
from tenure.chain.home import HomeFacts, create_home, find_home
from tenure.chain.leadership import Leadership, challenge
from tenure.chain.notes import Notes, begin_notes, load_notes, save_notes
from tenure.chain.place import Step
from tenure.chain.settings import ChainSettings
from tenure.clock import Clock
from tenure.errors import Conflict
from tenure.log.disk import Disk
from tenure.log.segment import segment_numbers
from tenure.objects.probe import ROUNDS, probe
from tenure.objects.retrying import RetryingStore

__all__ = ["Member"]

_NONCE_BYTES = 16
_LOG_ID_BYTES = 16
_LOOK_MS = 1_000


class Member:
    """A locked directory that wants to lead a home. ``lead`` is called once."""

    def __init__(
        self,
        store: RetryingStore,
        disk: Disk,
        *,
        settings: ChainSettings,
        clock: Clock,
        url: str,
        is_over: Callable[[], bool],
    ) -> None:
        self._store = store
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._url = url
        self._is_over = is_over
        self._catching_up = CatchUp(disk, save=partial(save_notes, disk))
        self.notes: Notes | None = None

    async def lead(self) -> Leadership:
        """Return the leadership of a new epoch; the local segments then hold the chain, and perhaps a tail behind it.

        Raises Conflict where another directory leads and lives, where the prefix or the directory holds another log,
        or where the directory holds a log that is in no home yet; Corrupt where the chain or the copy is damaged;
        StoreRefused where the store does not keep create-if-absent.
        """
        notes, facts = await self._find()
        chain = Chain(self._store, bytes.fromhex(facts.log_id), self._settings)
        while True:
            notes = await self._catching_up.run(chain, notes)
            if not notes.may_lead_at_once:
                await self._wait_for_silence(chain, notes)
            nonce = secrets.token_bytes(_NONCE_BYTES)
            notes = notes.with_nonce(nonce)
            save_notes(self._disk, notes)
            leadership = await challenge(
                chain,
                notes.place,
                nonce=nonce,
                directory=bytes.fromhex(notes.directory),
                url=self._url,
                clock=self._clock,
                is_over=self._is_over,
            )
            if leadership is not None:
                leadership.metrics.diverged_bytes = self._catching_up.diverged_bytes
                self.notes = notes.after(Step(leadership.fence, notes.place, leadership.place))
                save_notes(self._disk, self.notes)
                return leadership

    async def _find(self) -> tuple[Notes, HomeFacts]:
        """Return the notes of this directory and the facts of its home; create both where there is neither."""
        notes, has_log = load_notes(self._disk), bool(segment_numbers(self._disk))
        if has_log and notes is None:
            raise Conflict(
                "this directory holds a log that lives in no home: bring it there with `tenure home adopt`, "
                "or serve with an empty directory",
                code="not_adopted",
            )
        url = self._store.store.url
        facts = await find_home(self._store)
        await probe(self._store, rounds=ROUNDS if facts is None else 1)
        while facts is None:
            if notes is not None and has_log:
                raise Conflict(
                    f"the home of this directory was {notes.home}, and there is none under {url}: check the address; "
                    "if the home is lost, `tenure home adopt` makes a new one of this directory",
                    code="home_missing",
                )
            notes = await self._create()
            facts = await find_home(self._store)
        if notes is None or (notes.log_id != facts.log_id and not has_log):
            notes = begin_notes(facts, self._store.store.url)
            save_notes(self._disk, notes)  # before the first segment: a start that is cut short must know its home
        if notes.log_id != facts.log_id:
            message = f"this directory is a copy of another log than {url} holds: use another directory"
            raise Conflict(message, code="foreign_log")
        return notes, facts

    async def _create(self) -> Notes:
        """Create a home; another process may be faster, and then its home is the one."""
        log_id, nonce = secrets.token_bytes(_LOG_ID_BYTES), secrets.token_bytes(_NONCE_BYTES)
        notes = begin_notes(HomeFacts(log_id=log_id.hex()), self._store.store.url).with_nonce(nonce)
        save_notes(self._disk, notes)
        await create_home(self._store, log_id, epoch=0, nonce=nonce, url=self._url, now_ms=self._clock.wall_ms())
        return notes

    async def _wait_for_silence(self, chain: Chain, notes: Notes) -> None:
        """Wait until another directory's leader has been silent for long enough. Raises Conflict where it lives."""
        place, first = notes.place, await read_hint(self._store, notes.leader)
        until_ms = self._clock.boot_ms() + self._settings.silence_ms
        while self._clock.boot_ms() < until_ms:
            await asyncio.sleep(min(_LOOK_MS, self._settings.silence_ms) / 1000)
            is_free = await chain.read(place.epoch, place.number) is None
            if not is_free or await read_hint(self._store, notes.leader) != first:
                who = first.url if first is not None and first.url else "another process"
                raise Conflict(
                    f"{who} leads this home and lives: stop it first, or give this one a home of its own",
                    code="home_led",
                    leader=first.url if first is not None else "",
                )
