"""`tenure serve`: run a server in the foreground.

One line on standard output contains its address; everything else goes to the log on standard error. SIGTERM and SIGINT
stop it gracefully and a second one at once; SIGHUP reads the keys again. It exits with 1 if the disk failed.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import uvloop

from tenure.cli.main import OK, PROBLEM, USAGE
from tenure.errors import Corrupt, TenureError
from tenure.http.service import Service
from tenure.http.settings import load_settings, pairs
from tenure.logs import configure

__all__ = ["run"]

log = logging.getLogger("tenure.server")

# How long the line with the address waits for a replay to end: most end within it, and a program that waits for the
# line then finds the server ready.
_REPLAY_PATIENCE_S = 1.0

_SWITCH_S = 10e-6
"""The switch interval: how long the sync thread waits for the GIL before it requests it.

The loop releases the GIL for a moment in every callback and takes it back before a waiting thread has woken; each time
the thread waits again, and with the default of 5 ms it never requests it: beside two busy connections a sync of 0.2 ms
then takes 100. Two threads that both compute would lose a third of their time to this; here only one does.
"""


def run(flags: dict[str, Any], *, sets: list[str], file: Path | None) -> int:
    """Serve until a signal; returns the exit code. ``flags`` that are None were not given."""
    try:
        given = {name: value for name, value in flags.items() if value is not None} | pairs(sets)
        settings, strangers = load_settings(given, environment=os.environ, file=file)
        configure(settings.log_format, level=getattr(logging, settings.log_level.upper()))
        if strangers:
            log.warning("these variables are no settings and are ignored: %s", ", ".join(strangers))
        service = Service(settings)
        sys.setswitchinterval(_SWITCH_S)
        address = f"{settings.host}:{settings.port}"
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_Serving(service, address).live())
    except Corrupt as error:
        return _refuse(error.message, PROBLEM)
    except TenureError as error:
        return _refuse(error.message)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror or error}")


_COLLECTIONS_MIN = 25
"""Collections of young objects between two of all objects, which block the loop."""


class _Serving:
    """One run of a server under signals."""

    def __init__(self, service: Service, address: str) -> None:
        self._service = service
        self._address = address
        self._stop_asked = asyncio.Event()
        self._opening: asyncio.Task[None] | None = None

    async def live(self) -> int:
        service, loop = self._service, asyncio.get_running_loop()
        try:
            await service.start()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise OSError(error.errno, os.strerror(error.errno), self._address) from error
            raise
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, service.reload_keys)
        self._opening = asyncio.create_task(service.open())
        asked = asyncio.create_task(self._stop_asked.wait())
        await asyncio.wait({self._opening, asked}, timeout=_REPLAY_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if not self._stop_asked.is_set() and not _failed(self._opening):
            print(f"listening on {service.address}", flush=True)
        await asyncio.wait({self._opening, asked}, return_when=asyncio.FIRST_COMPLETED)
        if _failed(self._opening):
            await service.stop()
            self._opening.result()
        _settle_memory()
        ended = asyncio.create_task(service.ended.wait())
        await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
        await service.stop()
        if not self._opening.done():
            # A replay cannot be interrupted, and need not be: it writes nothing that the next one needs.
            _leave_now(OK)
        return PROBLEM if service.failed else OK

    def _stop(self, number: signal.Signals) -> None:
        if self._stop_asked.is_set():
            _leave_now(128 + number)
        log.info("stopping: once more stops at once", extra={"signal": number.name})
        self._stop_asked.set()


def _failed(opening: asyncio.Task[None]) -> bool:
    return opening.done() and opening.exception() is not None


def _settle_memory() -> None:
    """Freeze the present objects, which stay: each later garbage collection would take 20 ms for them."""
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _COLLECTIONS_MIN)


def _leave_now(code: int) -> None:
    """End the process at once, as a crash would: the log needs no further step."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _refuse(message: str, code: int = USAGE) -> int:
    print(f"tenure: {' '.join(message.split())}", file=sys.stderr)
    return code
