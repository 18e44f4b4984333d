"""`tenure worker`: run the tasks of an app until SIGTERM, then drain."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from tenure.cli.loading import Unloadable, load_app
from tenure.cli.main import PROBLEM
from tenure.cli.options import duration
from tenure.cli.remote import exit_code
from tenure.cli.screen import note, refuse
from tenure.errors import TenureError

__all__ = ["worker"]

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
    drain: Annotated[
        int,
        typer.Option(
            "--drain", parser=duration, metavar="DURATION", help="How long running jobs may go on at the end."
        ),
    ] = "25s",  # type: ignore[assignment]
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", min=0, max=65_535, help="Serve Prometheus metrics there.")
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Start anew when a file changes; for development.")] = False,
    no_push: Annotated[bool, typer.Option("--no-push", help="Claim jobs instead of having them pushed.")] = False,
    log_format: Annotated[str, typer.Option("--log-format", help="text or json.")] = "text",
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Work at the queues of an app until SIGTERM, then drain; a second signal stops at once.

    The module is imported from the current directory.
    """
    if log_format not in _FORMATS:
        raise typer.BadParameter("--log-format is text or json")
    if log_level not in _LEVELS:
        raise typer.BadParameter("--log-level is debug, info, warning or error")
    names = [name for part in queues or [] for name in part.split(",") if name]
    try:
        if reload:
            raise typer.Exit(_reloading(log_format, log_level))
        found = load_app(app)
        from tenure.worker.logs import configure
        from tenure.worker.worker import run_app

        configure(log_format, log_level)
        code = run_app(
            found,
            queues=names or None,
            concurrency=concurrency,
            drain_ms=drain,
            push=not no_push,
            metrics_port=metrics_port,
        )
    except Unloadable as failure:
        print(failure, file=sys.stderr)
        note(f"{app} could not be imported: the lines above are from its own module")
        code = PROBLEM
    except (TenureError, OSError) as error:
        code = refuse(error, exit_code(error), as_json=False)
    raise typer.Exit(code)


def _reloading(log_format: str, log_level: str) -> int:
    """Be the parent of a worker with the same arguments but this one."""
    from tenure.worker.logs import configure
    from tenure.worker.reload import run_reloading

    configure(log_format, log_level)
    arguments = [argument for argument in sys.argv[1:] if argument != "--reload"]
    return run_reloading(["-m", "tenure.cli.main", *arguments])
