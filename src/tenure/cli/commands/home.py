"""`tenure home`: look at the home of a log, verify it, and bring a directory into one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tenure.chain.adopt import adopt as adopt_log
from tenure.chain.inspect import Walked, walk_home
from tenure.chain.settings import ChainSettings
from tenure.cli import screen
from tenure.cli.commands.directory import open_disk
from tenure.cli.main import OK
from tenure.cli.options import AsJson, Directory
from tenure.cli.screen import Payload, Shown
from tenure.cli.words import count, size
from tenure.clock import SystemClock
from tenure.objects.background import background
from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import open_store
from tenure.settings import Settings

__all__ = ["home"]

home = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The home of a log: a store in which it survives its machine."
)

Url = Annotated[str, typer.Argument(help="The home: s3://…, gs://…, az://… or file:///….", show_default=False)]


@home.command()
def status(url: Url, as_json: AsJson = False) -> None:
    """Show the log in a home: how long its chain is, where it ends, and who leads it."""
    raise typer.Exit(screen.answer(lambda: _walk(url), _show_status, as_json=as_json))


@home.command()
def verify(url: Url, as_json: AsJson = False) -> None:
    """Read every link of a home and prove that each follows the one before. Exit code 1 where one does not."""
    raise typer.Exit(screen.answer(lambda: _walk(url), _show_verified, as_json=as_json))


@home.command()
def adopt(directory: Directory, url: Url, as_json: AsJson = False) -> None:
    """Bring the log of a directory into an empty home. No server may have it open; serve it with --home afterwards."""
    raise typer.Exit(screen.answer(lambda: _adopt(directory, url), _show_adopted, as_json=as_json))


def _walk(url: str) -> Shown:
    settings = ChainSettings()
    store = RetryingStore(Metered(open_store(url), StoreMetrics()), settings)
    return _payload(url, background().run(walk_home(store, settings))), OK


def _payload(url: str, found: Walked) -> Payload:
    last = found.last
    return {
        "home": url,
        "log_id": found.facts.log_id,
        "epoch": found.place.epoch,
        "next_number": found.place.number,
        "last_batch": found.place.end.batch,
        "links": found.links,
        "fences": found.fences,
        "bytes": found.link_bytes,
        "released": last is not None and last.is_released,
        "leader": found.leader.url if found.leader is not None else None,
    }


def _show_status(console: Console, payload: Payload) -> None:
    console.print(f"log {payload['log_id']}, epoch {payload['epoch']}, batch {payload['last_batch']:,}")
    console.print(f"{count(payload['links'], 'link')} with {size(payload['bytes'])}")
    if payload["released"]:
        console.print("nobody leads it: the last leader has given it up")
    else:
        console.print(f"led by {payload['leader'] or 'a process that does not say where it is'}, unless that has died")


def _show_verified(console: Console, payload: Payload) -> None:
    fences = count(payload["fences"], "epoch")
    console.print(
        f"{count(payload['links'], 'link')} in {fences} follow each other, up to batch {payload['last_batch']:,}"
    )
    console.print("no problems found")


def _adopt(directory: Path, url: str) -> Shown:
    store, disk = open_store(url), open_disk(directory)
    segment_bytes = Settings().segment_bytes
    place = adopt_log(store, disk, settings=ChainSettings(), clock=SystemClock(), segment_bytes=segment_bytes)
    return {"directory": str(directory), "home": url, "epoch": place.epoch, "last_batch": place.end.batch}, OK


def _show_adopted(console: Console, payload: Payload) -> None:
    console.print(f"batch {payload['last_batch']:,} and all before it are in {screen.escape(payload['home'])}")
    console.print(
        f"next: tenure serve --data {screen.escape(payload['directory'])} --home {screen.escape(payload['home'])}"
    )
