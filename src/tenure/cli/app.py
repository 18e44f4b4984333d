"""The list of the commands of `tenure`. Each is in the module of its own name, and imports slow modules
when it runs.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Annotated

import typer

from tenure import __version__
from tenure.cli import screen
from tenure.cli.buffer.buffer import buffer
from tenure.cli.commands.claim import claim
from tenure.cli.commands.dead import dead
from tenure.cli.commands.export import export
from tenure.cli.commands.inspect import inspect
from tenure.cli.commands.put import put
from tenure.cli.commands.queue import queue
from tenure.cli.commands.settle import ack, extend, nack
from tenure.cli.commands.tail import tail
from tenure.cli.commands.top import top
from tenure.cli.commands.topics import topics
from tenure.cli.commands.worker import worker
from tenure.cli.options import AsJson, Directory
from tenure.cli.pipeline.pipeline import pipeline
from tenure.cli.spark.compact import compact
from tenure.cli.spark.report import report
from tenure.cli.spark.spark import spark

__all__ = ["app"]

app = typer.Typer(
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


@app.command("tour")
def _tour(
    spark: Annotated[
        Path | None, typer.Option(help="Go on with Spark, and keep its table and report in this directory.")
    ] = None,
) -> None:
    """Show the engine at work: a worker killed with SIGKILL, the recovery, leases, dead letters. Takes seconds."""
    from tenure.cli.tour import tour

    raise typer.Exit(tour.run(spark))


@app.command("serve")
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
    }
    raise typer.Exit(serve.run(flags, sets=sets or [], file=settings))


for command in (worker, put, claim, ack, nack, extend, topics, inspect, tail, export, report, compact):
    app.command()(command)
app.add_typer(queue, name="queue")
app.add_typer(dead, name="dead")
app.add_typer(buffer, name="buffer")
app.add_typer(pipeline, name="pipeline")
app.add_typer(spark, name="spark")
app.command()(top)


@app.command("verify")
def _verify(directory: Directory, as_json: AsJson = False) -> None:
    """Read every byte of a log, change nothing, and list every problem. Exit code 1 if there is one."""
    from tenure.cli.commands import salvage

    raise typer.Exit(screen.answer(lambda: salvage.verify(directory), salvage.show, as_json=as_json))


@app.command("salvage")
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
