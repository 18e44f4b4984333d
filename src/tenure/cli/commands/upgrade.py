"""`tenure upgrade`: show which features of this version the log uses, and turn on the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import replace
from rich.console import Console

from tenure import __version__
from tenure.broker.upgrade import finalize_closed, status_of
from tenure.cli import screen
from tenure.cli.commands.directory import open_disk
from tenure.cli.main import OK
from tenure.cli.options import Target, on_server
from tenure.cli.remote import ask, plain
from tenure.cli.screen import Payload, Shown, table
from tenure.contract.replies import UpgradeStatus
from tenure.errors import Corrupt
from tenure.log.features import FEATURES, Feature
from tenure.log.opening import peek_features

__all__ = ["finalize_directory", "find_directory", "upgrade"]

upgrade = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="After an upgrade: show its new features, and turn them on."
)

Data = Annotated[
    Path | None, typer.Option("--data", help="A data directory that no process has open; no server is needed.")
]
LookedAt = Annotated[Path | None, typer.Option("--data", help="Read this data directory instead; no server is needed.")]


@upgrade.command("status")
@on_server
def _status(data: LookedAt = None, *, target: Target, as_json: bool) -> None:
    """Show the version, and its features on and off. While one is off, the version before can be started again."""
    if data is not None:
        raise typer.Exit(screen.answer(lambda: find_directory(data), _show, as_json=as_json))
    raise typer.Exit(ask(target, lambda client: (plain(client.upgrade_status()), OK), _show, as_json=as_json))


@upgrade.command("finalize")
@on_server
def _finalize(data: Data = None, *, target: Target, as_json: bool) -> None:
    """Turn on every feature of this version. After that no older version can open the directory: back it up before."""
    if data is not None:
        raise typer.Exit(screen.answer(lambda: finalize_directory(data), _show, as_json=as_json))
    raise typer.Exit(ask(target, lambda client: (plain(client.finalize_upgrade()), OK), _show, as_json=as_json))


def find_directory(directory: Path, *, known: Sequence[Feature] = FEATURES) -> Shown:
    """Return the features of a data directory, which may be in use; changes nothing. Raises NotFound, Corrupt."""
    features = peek_features(open_disk(directory), known=known)
    if features is None:
        raise Corrupt("the log changes faster than it can be read: stop what writes it, then look again")
    return _payload(status_of(features)), OK


def finalize_directory(directory: Path, *, known: Sequence[Feature] = FEATURES) -> Shown:
    """Turn on the features of a data directory. Raises NotFound, Corrupt, and Conflict where it is in use."""
    return _payload(finalize_closed(open_disk(directory), known=known)), OK


def _payload(status: UpgradeStatus) -> Payload:
    found: Payload = plain(replace(status, version=__version__))
    return found


def _show(console: Console, found: Payload) -> None:
    """Print the features as text, and what to do next."""
    on, off = found["on"], found["off"]
    console.print(f"version {found['version']}", markup=False)
    rows = [_row(feature, "on") for feature in on] + [_row(feature, "off") for feature in off]
    if rows:
        table(console, ("feature", "needs version", "state"), rows)
    if off:
        console.print("a version before this one can be started again, until: tenure upgrade finalize")
    else:
        console.print("every feature of this version is on: there is nothing to finalize")


def _row(feature: dict[str, Any], state: str) -> tuple[str, str, str]:
    return feature["name"], feature["since"], state
