"""The commands of `tenure`, in one list. Each is in the module of its own name and is loaded when it is called: to load
all of them takes longer than most of them run.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tenure import __version__
from tenure.cli import screen
from tenure.cli.options import AsJson, Directory

__all__ = ["app"]


class _LazyGroup(TyperGroup):
    """A group that loads a command when it is called, or listed in the help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: dict[str, Any] = dict.fromkeys(_COMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self.commands.get(cmd_name) is None and cmd_name in _COMMANDS:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)


def _load(name: str) -> Any:
    found: Any = _COMMANDS[name]
    if isinstance(found, str):
        module, _, attribute = found.partition(":")
        found = getattr(import_module(f"tenure.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False, rich_markup_mode=None)
        found.command(name)(function)
    else:
        found._add_completion = False  # it is the whole command line that is completed
    loaded = get_command(found)
    loaded.name = name
    return loaded


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A durable work queue: work is handed out on leases, and the log is the truth.",
    epilog=(
        "Exit codes: 0 all is well, 1 a problem was found, 2 wrong usage, 3 the program itself failed, 4 nothing "
        "there, 5 not now: try later, 6 the key does not allow it, 7 a lease was lost, 8 the outcome is unknown, "
        "130 interrupted."
    ),
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tenure {__version__} (Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _tour(
    spark: Annotated[
        Path | None, typer.Option(help="Go on with Spark, and keep its table and report in this directory.")
    ] = None,
) -> None:
    """Show the engine at work: a worker killed with SIGKILL, the recovery, leases, dead letters. Takes seconds."""
    from tenure.cli.tour import tour

    raise typer.Exit(tour.run(spark))


def _serve(
    data: Annotated[Path | None, typer.Option(help="The data directory; made where it is not there.")] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on [127.0.0.1].")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="0 picks a free one [4000].")] = None,
    keys_file: Annotated[Path | None, typer.Option(help="API keys, one a line; read again on SIGHUP.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None,
    host_name: Annotated[list[str] | None, typer.Option(help="A further name that Host and Origin may have.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json [text].")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error [info].")] = None,
    insecure_no_auth: Annotated[
        bool | None, typer.Option("--insecure-no-auth", help="Listen beyond loopback without keys.")
    ] = None,
    test_clock: Annotated[
        bool | None, typer.Option("--test-clock", help="Serve POST /v0/_test/advance; loopback only.")
    ] = None,
    events: Annotated[
        str | None, typer.Option(help="Export lifecycle events to the buffer at this URL: file:///…, s3://….")
    ] = None,
    home: Annotated[
        str | None, typer.Option(help="Keep the log in the store at this URL: s3://…, gs://…, az://…, file:///….")
    ] = None,
    advertise: Annotated[str | None, typer.Option(help="The URL under which others reach this server.")] = None,
    settings: Annotated[Path | None, typer.Option(help="A TOML file of settings.", envvar="TENURE_SETTINGS")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Any other setting, as NAME=VALUE.")] = None,
) -> None:
    """Serve the /v0 API over HTTP until SIGTERM. Keys come from TENURE_API_KEYS or a keys file, never from a flag."""
    from tenure.cli.commands import serve

    paths = {"data": data, "keys_file": keys_file, "tls_cert": tls_cert, "tls_key": tls_key}
    flags = {name: str(path) if path is not None else None for name, path in paths.items()} | {
        "host": host,
        "port": port,
        "host_names": host_name or None,
        "log_format": log_format,
        "log_level": log_level,
        "insecure_no_auth": insecure_no_auth,
        "test_clock": test_clock,
        "events": events,
        "home": home,
        "advertise": advertise,
    }
    raise typer.Exit(serve.run(flags, sets=sets or [], file=settings))


def _verify(directory: Directory, as_json: AsJson = False) -> None:
    """Read every byte of a log, change nothing, and list every problem. Exit code 1 if there is one."""
    from tenure.cli.commands import salvage

    raise typer.Exit(screen.answer(lambda: salvage.verify(directory), salvage.show, as_json=as_json))


def _salvage(
    directory: Directory,
    into: Annotated[Path, typer.Argument(help="A new or empty directory for what is saved.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Save every record that is whole into a new directory and list what is lost (then the exit code is 1).

    The damaged directory is not changed. No process may have it open.
    """
    from tenure.cli.commands import salvage

    raise typer.Exit(screen.answer(lambda: salvage.salvage(directory, into), salvage.show, as_json=as_json))


_COMMANDS: Final[dict[str, str | Callable[..., None]]] = {
    "tour": _tour,
    "serve": _serve,
    "worker": "commands.worker:worker",
    "put": "commands.put:put",
    "claim": "commands.claim:claim",
    "ack": "commands.settle:ack",
    "nack": "commands.settle:nack",
    "extend": "commands.settle:extend",
    "topics": "commands.topics:topics",
    "inspect": "commands.inspect:inspect",
    "tail": "commands.tail:tail",
    "export": "commands.export:export",
    "report": "spark.report:report",
    "compact": "spark.compact:compact",
    "top": "commands.top:top",
    "verify": _verify,
    "salvage": _salvage,
    "home": "commands.home:home",
    "cluster": "commands.cluster:cluster",
    "upgrade": "commands.upgrade:upgrade",
    "backup": "commands.backup:backup",
    "restore": "commands.backup:restore",
    "queue": "commands.queue:queue",
    "dead": "commands.dead:dead",
    "buffer": "buffer.buffer:buffer",
    "pipeline": "pipeline.pipeline:pipeline",
    "spark": "spark.spark:spark",
}
"""Each command by its name, in the order of the help: itself, or the module and the name that it is loaded from."""
