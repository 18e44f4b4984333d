"""Shared by the commands that run Spark: the options of a session, and the status line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli.screen import console_for, escape
from tenure.cli.words import clean
from tenure.durations import ms_of
from tenure.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tenure.spark.sinks.protocol import Needs

__all__ = ["Conf", "Master", "Remote", "Where", "moment_ms", "session", "status_line"]

Master = Annotated[
    str | None, typer.Option("--master", help="Where Spark runs [local[*]]: spark://HOST:PORT, yarn, ….")
]
Remote = Annotated[str | None, typer.Option("--remote", help="A Spark Connect server: sc://HOST:PORT.")]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be given again.")
]


class Where:
    """The checked options of a session: ``conf`` are ``KEY=VALUE``. Raises BadParameter for anything else."""

    def __init__(self, master: str | None, remote: str | None, conf: Sequence[str] | None) -> None:
        for pair in conf or ():
            if not pair.partition("=")[1] or not pair.partition("=")[0].strip():
                message = f"{clean(pair)!r} is no setting: write it as spark.key=value"
                raise typer.BadParameter(message, param_hint="--conf")
        if master is not None and remote is not None:
            raise typer.BadParameter("a session has a master or a remote, not both", param_hint="--remote")
        self.master, self.remote = master, remote
        self.conf = {key.strip(): value.strip() for key, _, value in (pair.partition("=") for pair in conf or ())}


@contextmanager
def session(name: str, where: Where, *, needs: Sequence[Needs] = ()) -> Iterator[SparkSession]:
    """Open a session for one command, and stop it at the end. Raises Invalid where it cannot be opened."""
    from tenure.spark.session.session import open_session

    spark = open_session(name, master=where.master, remote=where.remote, conf=where.conf, needs=needs)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with console_for(stderr=True).status("starting Spark") as status:
        yield lambda words: status.update(escape(words))


def moment_ms(text: str) -> int:
    """Parse a time of the command line into ms: ``2026-11-15``, ``2026-11-15T08:00``, in UTC without a zone, or how
    long ago: ``24h``.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return int(datetime.now(UTC).timestamp() * 1000) - ms_of(text, field="a moment")
        except Invalid:
            message = f"{text!r} is no moment: write 2026-11-15, 2026-11-15T08:00 or, for how long ago, 24h"
            raise typer.BadParameter(message) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
