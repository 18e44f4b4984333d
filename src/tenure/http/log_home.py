"""The home of a log that this server leads alone: opened with the broker, kept while it serves, given up with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tenure import __version__
from tenure.broker.broker import Broker
from tenure.chain.hint import Hint
from tenure.chain.keeper import Keeper
from tenure.chain.leadership import Lost
from tenure.chain.open import open_shipped
from tenure.chain.shipped import ShippedLog
from tenure.chain.signs import Signs
from tenure.clock import Clock
from tenure.errors import Invalid
from tenure.http.api.chain_families import alone_families
from tenure.http.api.prometheus import Family
from tenure.http.settings import ServerSettings
from tenure.log.disk import open_directory
from tenure.objects.file_store import FileStore
from tenure.objects.local import check_local
from tenure.objects.store import ObjectStore, OutcomeUnknown, StoreRefused, open_store

__all__ = ["LogHome", "explained", "open_home_store"]

_SCHEMES = ("s3", "gs", "az", "file")


def open_home_store(settings: ServerSettings) -> ObjectStore:
    """Return the store of the home. Raises Invalid for a URL that cannot be one."""
    if urlsplit(settings.home).scheme not in _SCHEMES:
        raise Invalid(f"a home is s3://…, gs://…, az://… or file:///…; got {settings.home!r}", field="home")
    store = open_store(settings.home)
    if isinstance(store, FileStore):
        check_local(store.root)
    return store


@contextmanager
def explained(home: str) -> Iterator[None]:
    """Raise the errors of a store with the home's address, and what to check first."""
    try:
        yield
    except OutcomeUnknown as error:
        why = f"{error.message}. Check the address and the network, then start again"
        raise OutcomeUnknown(f"the home {home} does not answer: {why}") from error
    except StoreRefused as error:
        if error.code != StoreRefused.default_code:
            raise  # it says by itself what is wrong with the store
        why = f"check the bucket, the keys and what they may do. {error.message}"
        raise StoreRefused(f"the home {home} refuses: {why}") from error


class LogHome:
    """One server's part in a home that it shares with nobody."""

    def __init__(self, settings: ServerSettings, *, clock: Clock, address: Callable[[], str]) -> None:
        self._store = open_home_store(settings)
        self._settings = settings
        self._clock = clock
        self._address = address
        self._log: ShippedLog | None = None
        self._keeper: Keeper | None = None
        self._signs: Signs | None = None
        self._is_over = False

    def open(self) -> ShippedLog:
        """Lead the home and return its log; waits for the store. Raises as `open_shipped`."""
        settings = self._settings
        with explained(settings.home):
            self._log = open_shipped(
                self._store,
                open_directory(settings.data),
                settings=settings.chain,
                clock=self._clock,
                segment_bytes=settings.engine.segment_bytes,
                url=self._address(),
                is_over=lambda: self._is_over,
            )
        return self._log

    def keep(self, broker: Broker) -> None:
        """Keep the lead while the broker serves; where it is lost, the broker takes nothing more."""
        assert self._log is not None, "it was opened"
        loop, leadership = asyncio.get_running_loop(), self._log.leadership

        def lose(lost: Lost) -> None:
            loop.call_soon_threadsafe(broker.give_up, lost)

        self._keeper = Keeper(leadership, lose)
        self._signs = Signs(
            leadership.chain.store,
            settings=self._settings.chain,
            clock=self._clock,
            directory=leadership.fence.directory.hex(),
            say=self._say,
            looks=False,
        )
        self._keeper.start()
        self._signs.start()

    def _say(self) -> Hint:
        assert self._log is not None, "it was opened"
        place = self._log.leadership.place
        return Hint(url=self._address(), epoch=place.epoch, number=place.number, version=__version__)

    def families(self) -> Iterator[Family]:
        """Return the metrics of the home, once it is led."""
        return iter(()) if self._log is None else alone_families(self._log)

    def give_up_soon(self, wait_s: float) -> None:
        """Give up links whose outcome is unknown after this time: the server stops, and must not wait for ever."""
        asyncio.get_running_loop().call_later(wait_s, self._end)

    def _end(self) -> None:
        self._is_over = True

    async def close(self) -> None:
        """End what keeps the lead."""
        if self._keeper is not None and self._signs is not None:
            self._keeper.stop()
            await asyncio.to_thread(self._signs.stop)
