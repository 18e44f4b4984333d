"""`tenure worker`: run the tasks of an app until SIGTERM, then drain."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tenure.address import parse_addresses
from tenure.cli.loading import Unloadable, load_app, user_traceback
from tenure.cli.main import PROBLEM
from tenure.cli.options import KeyFile, Url, duration, key_in
from tenure.cli.remote import exit_code
from tenure.cli.screen import note, refuse
from tenure.endpoint import KEY_VARIABLE, URL_VARIABLE
from tenure.errors import Invalid, TenureError

if TYPE_CHECKING:
    from tenure.worker.app import App

__all__ = ["worker"]

_PORT_MAX: Final = 65_535
_FORMATS: Final = ("text", "json")
_LEVELS: Final = ("debug", "info", "warning", "error")


def worker(
    app: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="Where the app is, like shop.jobs:app.", show_default=False)
    ],
    queues: Annotated[
        list[str] | None,
        typer.Option("--queues", help="Only these, comma-separated or given again [every task's].", show_default=False),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=0, help="Jobs at once over all tasks; 0 leaves it to each task.")
    ] = 0,
    processes: Annotated[
        int, typer.Option("--processes", min=1, max=256, help="Worker processes under one supervisor.")
    ] = 1,
    drain: Annotated[
        int,
        typer.Option(
            "--drain", parser=duration, metavar="DURATION", help="How long running jobs may go on at the end."
        ),
    ] = "25s",  # type: ignore[assignment]
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", min=0, max=_PORT_MAX, help="Serve metrics and probes there.")
    ] = None,
    metrics_host: Annotated[
        str | None,
        typer.Option("--metrics-host", help="The address for it [127.0.0.1]; it asks no key.", show_default=False),
    ] = None,
    url: Url = None,
    key_file: KeyFile = None,
    reload: Annotated[bool, typer.Option("--reload", help="Start anew when a file changes; for development.")] = False,
    no_push: Annotated[bool, typer.Option("--no-push", help="Claim jobs instead of having them pushed.")] = False,
    suspects: Annotated[
        bool, typer.Option("--suspects", help="Run only jobs whose worker was lost, for a worker set apart for them.")
    ] = False,
    log_format: Annotated[str, typer.Option("--log-format", help="text or json.")] = "text",
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Work at the queues of an app until SIGTERM, then drain; a second signal stops at once.

    A supervisor starts the workers, and restarts one that dies. The module is imported from the current directory.
    """
    if log_format not in _FORMATS:
        raise typer.BadParameter("--log-format is text or json")
    if log_level not in _LEVELS:
        raise typer.BadParameter("--log-level is debug, info, warning or error")
    if metrics_host is not None and metrics_port is None:
        raise typer.BadParameter("--metrics-host needs a --metrics-port")
    if metrics_port and metrics_port + processes - 1 > _PORT_MAX:
        raise typer.BadParameter(f"--metrics-port leaves no port for each of {processes} processes")
    from tenure.worker.hooks import StartupFailed
    from tenure.worker.observing.logs import configure
    from tenure.worker.processes.place import follow_supervisor
    from tenure.worker.processes.supervise import run_supervised
    from tenure.worker.runtime.worker import run_app

    place = follow_supervisor()
    names = [name for part in queues or [] for name in part.split(",") if name]
    try:
        if reload or place is None:
            configure(log_format, log_level)
            if reload:
                raise typer.Exit(_reloading())
            raise typer.Exit(run_supervised(_again(), processes, suspects=_again("--suspects"), drain_ms=drain))
        found = _app_at(app, url, key_file)
        configure(log_format, log_level)  # after the module, which may set up logging by itself
        code = run_app(
            found,
            queues=names or None,
            concurrency=concurrency,
            drain_ms=drain,
            push=not no_push,
            # One that runs on demand would take the port of something else.
            metrics_port=None if place.on_demand else metrics_port and metrics_port + place.index,
            metrics_host=metrics_host or "127.0.0.1",
            suspects=suspects,
            place=place,
        )
    except Unloadable as failure:
        print(failure, file=sys.stderr)
        note(f"{app} could not be imported: the lines above are from its own module")
        code = PROBLEM
    except StartupFailed as failure:
        print(user_traceback(failure.__cause__ or failure), file=sys.stderr)
        note(f"{failure}: no job was taken")
        code = PROBLEM
    except (TenureError, OSError) as error:
        code = refuse(error, exit_code(error), as_json=False)
    raise typer.Exit(code)


def _app_at(spec: str, url: str | None, key_file: Path | None) -> App:
    """Load the app, connected to the server of the flags. Raises Invalid where its module names another one."""
    key = None if key_file is None else key_in(key_file)
    if url is not None:
        parse_addresses(url)
        os.environ[URL_VARIABLE] = url
    if key is not None:
        os.environ[KEY_VARIABLE] = key
    app = load_app(spec)
    if url is not None and app.endpoint.url != url:
        raise Invalid(f"{spec} names its own server, {app.url}: leave the address out of App(…), or leave out --url")
    if key is not None and app.endpoint.key != key:
        raise Invalid(f"{spec} names its own key: leave the key out of App(…), or leave out --key-file")
    return app


def _again(*flags: str) -> list[str]:
    """Return this command as arguments of Python, with further ``flags``."""
    given = sys.argv[1:]
    after = given.index("worker") + 1
    return ["-P", "-m", "tenure.cli.main", *given[:after], *flags, *given[after:]]


def _reloading() -> int:
    """Run a worker with the same arguments but --reload, and restart it when a file changes."""
    from tenure.worker.processes.reload import run_reloading

    return run_reloading([argument for argument in _again() if argument != "--reload"])
