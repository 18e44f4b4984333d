"""The home of a served log: it is opened with the broker, kept while it serves, and given up with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from tenure.broker.broker import Broker
from tenure.chain.keeper import Keeper
from tenure.chain.leadership import Lost
from tenure.chain.open import open_shipped
from tenure.chain.shipped import ShippedLog
from tenure.clock import Clock
from tenure.errors import Invalid
from tenure.http.api.chain_families import chain_families
from tenure.http.api.prometheus import Family
from tenure.http.settings import ServerSettings
from tenure.log.disk import open_directory
from tenure.objects.file_store import FileStore
from tenure.objects.local import check_local
from tenure.objects.store import OutcomeUnknown, StoreRefused, open_store

__all__ = ["LogHome"]

log = logging.getLogger("tenure.server")

_SCHEMES = ("s3", "gs", "az", "file")


class LogHome:
    """One server's part in its home. Raises Invalid for a URL that cannot be one."""

    def __init__(self, settings: ServerSettings, *, clock: Clock, address: Callable[[], str]) -> None:
        if urlsplit(settings.home).scheme not in _SCHEMES:
            raise Invalid(f"a home is s3://…, gs://…, az://… or file:///…; got {settings.home!r}", field="home")
        self._store = open_store(settings.home)
        if isinstance(self._store, FileStore):
            check_local(self._store.root)
        self._settings = settings
        self._clock = clock
        self._address = address
        self._log: ShippedLog | None = None
        self._keeper: Keeper | None = None
        self._is_over = False

    def open(self) -> ShippedLog:
        """Lead the home and return its log; waits for the store. Raises as `open_shipped`."""
        settings = self._settings
        try:
            self._log = open_shipped(
                self._store,
                open_directory(settings.data),
                settings=settings.chain,
                clock=self._clock,
                segment_bytes=settings.engine.segment_bytes,
                url=settings.advertise or self._address(),
                is_over=lambda: self._is_over,
            )
        except OutcomeUnknown as error:
            why = f"{error.message}. Check the address and the network, then start again"
            raise OutcomeUnknown(f"the home {settings.home} does not answer: {why}") from error
        except StoreRefused as error:
            if error.code != StoreRefused.default_code:
                raise  # it says by itself what is wrong with the store
            why = f"check the bucket, the keys and what they may do. {error.message}"
            raise StoreRefused(f"the home {settings.home} refuses: {why}") from error
        return self._log

    def keep(self, broker: Broker) -> None:
        """Keep the lead while the broker serves; where it is lost, the broker takes nothing more."""
        assert self._log is not None, "it was opened"
        loop = asyncio.get_running_loop()

        def lose(lost: Lost) -> None:
            loop.call_soon_threadsafe(broker.give_up, lost)

        self._keeper = Keeper(self._log.leadership, lose)
        self._keeper.start()

    def families(self) -> Iterator[Family]:
        """Return the metrics of the home, once it is led."""
        return iter(()) if self._log is None else chain_families(self._log)

    def give_up_soon(self, wait_s: float) -> None:
        """Give up links whose outcome is unknown after this time: the server stops, and must not wait for ever."""
        asyncio.get_running_loop().call_later(wait_s, self._end)

    def _end(self) -> None:
        self._is_over = True

    async def close(self) -> None:
        """End what keeps the lead."""
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.stop)
