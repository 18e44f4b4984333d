"""`tenure export`: follow the log of a data directory and send its lifecycle events into a buffer.

A server started with ``--events`` runs this as a child process. Run it by hand to export the log of a stopped broker,
or under a supervisor of your own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tenure.cli.main import OK, PROBLEM, USAGE
from tenure.errors import Corrupt, Indeterminate, Overloaded, TenureError

if TYPE_CHECKING:
    from tenure.export.exporter import Progress
    from tenure.http.settings import ServerSettings

__all__ = ["export"]

log = logging.getLogger("tenure.export")

_NICENESS = 10
"""The niceness of an exporter beside a server, which goes first."""


def export(
    data: Annotated[Path, typer.Option(help="The data directory whose log is exported.", show_default=False)],
    events: Annotated[str, typer.Option(help="The buffer: file:///…, s3://…, gs://… or az://….", show_default=False)],
    once: Annotated[bool, typer.Option("--once", help="Export what is there, then end.")] = False,
    log_format: Annotated[str | None, typer.Option(help="text or json [text].")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error [info].")] = None,
    settings: Annotated[Path | None, typer.Option(help="A TOML file of settings.", envvar="TENURE_SETTINGS")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="A setting, such as export.flush_ms=1000.")] = None,
    child: Annotated[bool, typer.Option("--child", hidden=True)] = False,
) -> None:
    """Send the lifecycle events of a broker's log into a buffer, until SIGTERM. Each exactly once, after any crash."""
    flags = {"data": str(data), "events": events, "log_format": log_format, "log_level": log_level}
    raise typer.Exit(
        _run({name: flag for name, flag in flags.items() if flag is not None}, sets, settings, once, child)
    )


def _run(flags: dict[str, str], sets: list[str] | None, file: Path | None, once: bool, child: bool) -> int:
    from tenure.http.settings import load_settings, pairs
    from tenure.log.interface import UnknownPosition
    from tenure.logs import configure

    try:
        settings, _ = load_settings(flags | pairs(sets or []), environment=os.environ, file=file)
        configure(settings.log_format, level=getattr(logging, settings.log_level.upper()))
        if child:
            os.nice(_NICENESS)
        asyncio.run(_export(settings, once=once, child=child))
    except TenureError as error:
        log.error("the export has ended: %s", error.message)
        return PROBLEM if isinstance(error, Corrupt | Indeterminate | Overloaded) else USAGE
    except (OSError, UnknownPosition) as error:
        log.error("the export has ended: %s", error)
        return PROBLEM
    return OK


async def _export(settings: ServerSettings, *, once: bool, child: bool) -> None:
    from tenure.export.buffer_outlet import BufferOutlet, producer_name
    from tenure.export.exporter import Exporter
    from tenure.log.disk import PosixDisk

    stop = asyncio.Event()
    _listen(stop, child=child)
    if once:
        stop.set()
    data = Path(settings.data)
    name = producer_name(PosixDisk(data, create=False))
    async with BufferOutlet(settings.events, name) as outlet:
        exporter = Exporter(data, outlet, settings=settings.export, on_progress=_report if child else _nothing)
        try:
            log.info("exporting lifecycle events", extra={"address": settings.events})
            await exporter.run(stop)
            progress = exporter.progress
            log.info("exported %d events up to batch %d of the log", progress.rows, progress.batch)
        finally:
            exporter.close()


def _listen(stop: asyncio.Event, *, child: bool) -> None:
    """Set ``stop`` on a signal, and in a child when the server that started it is gone."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if child:

        def wait_for_end_of_input() -> None:
            while os.read(0, 4096):
                pass
            loop.call_soon_threadsafe(stop.set)

        threading.Thread(target=wait_for_end_of_input, daemon=True).start()


def _report(progress: Progress) -> None:
    """Report progress to the server, as a line of JSON."""
    sys.stdout.buffer.write(msgspec.json.encode(progress) + b"\n")
    sys.stdout.buffer.flush()


def _nothing(progress: Progress) -> None:
    """Report nothing: without a server, the log is enough."""
