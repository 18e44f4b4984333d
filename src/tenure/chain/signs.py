"""Signs of life: a member writes its own into the home again and again, and looks at those of the others."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from tenure.chain.hint import Hint, Listed, list_hints, remove_hint, write_hint
from tenure.chain.settings import ChainSettings
from tenure.clock import Clock
from tenure.errors import TenureError
from tenure.objects.background import background
from tenure.objects.retrying import RetryingStore

__all__ = ["Seen", "Signs"]

logger = logging.getLogger("tenure.chain")

_REMOVE_S: Final = 1.0
_FRESH_RATIO: Final = 3
_KEEP_RATIO: Final = 10
"""The hint of a member that was silent for so many silences is removed."""
_KEEP_MS_MIN: Final = 10_000


class Seen(NamedTuple):
    """A hint of another member, and how long ago it was seen to change."""

    hint: Hint
    age_ms: int


class Signs:
    """The hint of one member, on the background loop. ``say`` returns what it says now.

    Only a member that shares its home looks at the hints of others.
    """

    def __init__(
        self,
        store: RetryingStore,
        *,
        settings: ChainSettings,
        clock: Clock,
        directory: str,
        say: Callable[[], Hint],
        looks: bool,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._directory = directory
        self._say = say
        self._looks = looks
        self._life = secrets.token_hex(4)
        self._count = 0
        self._others: dict[str, tuple[Hint, int]] = {}
        self._listed: dict[str, Listed] = {}
        self._task: Future[None] | None = None

    def start(self) -> None:
        """Begin to write and to look."""
        self._task = background().start(self._repeat())

    def say_now(self) -> None:
        """Write and look at once: something changed that the others want to know."""
        if self._task is not None:
            self._task.cancel()
            self.start()

    def stop(self) -> None:
        """End that, and remove the own hint; waits for the store for a short time."""
        if self._task is not None:
            self._task.cancel()
        with suppress(TenureError, TimeoutError):  # a hint that stays is as good as none after a while
            background().run(self._remove())

    def others(self) -> list[Seen]:
        """Return the other members, the one that was seen last first; also those that have not been seen for long."""
        now_ms = self._clock.boot_ms()
        seen = [Seen(hint, now_ms - at_ms) for hint, at_ms in self._others.values()]
        return sorted(seen, key=lambda each: each.age_ms)

    def living(self) -> list[Seen]:
        """Return the other members that live."""
        limit_ms = _FRESH_RATIO * self._settings.hint_ms
        return [seen for seen in self.others() if seen.age_ms <= limit_ms]

    def standbys(self) -> list[Seen]:
        """Return the members that follow, live and may take over."""
        return [seen for seen in self.living() if not seen.hint.leads and not seen.hint.trouble]

    async def _repeat(self) -> None:
        while True:
            try:
                await self.step()
            except TenureError as error:
                logger.warning("the home does not answer: %s", error.message)
            await asyncio.sleep(self._settings.hint_ms / 1000)

    async def step(self) -> None:
        """Write the own hint once, and look at the others'."""
        self._count += 1
        hint = msgspec.structs.replace(self._say(), life=self._life, count=self._count)
        await write_hint(self._store, self._directory, hint)
        if self._looks:
            keep_ms = max(_KEEP_MS_MIN, _KEEP_RATIO * self._settings.silence_ms)
            self._listed = await list_hints(self._store, self._listed, keep_ms=keep_ms)
            self._note(self._listed)

    def _note(self, listed: dict[str, Listed]) -> None:
        """Note when each hint was written, as far as the store says how long before the newest one."""
        newest_ms = max(
            (each.modified_ms for each in listed.values()), default=0
        )  # this member's own, or one beside it
        now_ms, known = self._clock.boot_ms(), self._others
        self._others = {
            name: known[name]
            if name in known and known[name][0] == hint
            else (hint, now_ms - max(0, newest_ms - modified_ms))
            for name, (hint, modified_ms) in listed.items()
            if name != self._directory
        }

    async def _remove(self) -> None:
        async with asyncio.timeout(_REMOVE_S):
            await remove_hint(self._store, self._directory)
