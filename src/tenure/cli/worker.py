"""`tenure worker`: run the tasks of an app until SIGTERM, then drain."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from tenure.cli.options import duration

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
