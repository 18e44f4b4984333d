"""`tenure top`: show queues live in the terminal. An unreachable server is shown as away, and polled
until it answers.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tenure.cli.commands.top_samples import SORTS, Row, Sample, Sampler
from tenure.cli.main import OK
from tenure.cli.options import Target, duration, on_server
from tenure.cli.remote import open_client, plain, report_refusal
from tenure.cli.screen import console_for, document, escape, table
from tenure.cli.words import age, clean
from tenure.errors import TenureError

__all__ = ["fitting", "sparkline", "top"]

_BARS: Final = "▁▂▃▄▅▆▇█"
_HEADS: Final = (
    *("queue", "ready#", "suspects#", "in flight#", "delayed#", "dead#", "oldest#", "in/s#", "out/s#", "depth"),
)
_SUSPECTS: Final = 2
_LEFT_OUT_FIRST: Final = (9, 4, 6, 5, 7, 8, 3, _SUSPECTS)
_NAME_WIDTH: Final = 12
_ROOM: Final = 6
_INTERVAL_MS_MIN: Final = 100


@on_server
def top(
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Queues that begin so.", show_default=False)] = "",
    interval: Annotated[
        int, typer.Option("--interval", parser=duration, metavar="DURATION", help="How often to look.")
    ] = "1s",  # type: ignore[assignment]
    sort: Annotated[str, typer.Option("--sort", help=f"By {', '.join(SORTS)}.")] = "ready",
    once: Annotated[bool, typer.Option("--once", help="Look twice, print the second sample, and leave.")] = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Watch queues: depths, ages, rates. q or Ctrl-C leaves, s sorts anew. --json prints one sample, like --once.

    Without a terminal it prints one sample too.
    """
    if sort not in SORTS:
        raise typer.BadParameter(f"--sort is one of {', '.join(SORTS)}")
    if interval < _INTERVAL_MS_MIN:
        raise typer.BadParameter(f"--interval is {_INTERVAL_MS_MIN}ms or more")
    try:
        with open_client(target) as client:
            view = _View(
                Sampler(client, prefix=prefix), url=target.endpoint().url, interval_s=interval / 1000, sort=sort
            )
            if once or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
                view.once(as_json=as_json)
            else:
                view.live()
    except (TenureError, OSError) as error:
        raise typer.Exit(report_refusal(target, error, as_json=as_json)) from None
    raise typer.Exit(OK)


class _View:
    """The samples on the screen."""

    def __init__(self, sampler: Sampler, *, url: str, interval_s: float, sort: str) -> None:
        self._sampler = sampler
        self._url = url
        self._interval_s = interval_s
        self._sort = sort
        self._sample: Sample | None = None
        self._trouble = ""
        self._restarts = 0

    def once(self, *, as_json: bool) -> None:
        """Print one sample with its rates, which takes two requests."""
        self._sampler.take(time.monotonic())
        time.sleep(self._interval_s)
        sample = self._sampler.take(time.monotonic())
        sample.queues.sort(key=SORTS[self._sort])
        if as_json:
            document(plain(sample))
            return
        console = console_for()
        console.print(self._headline(sample), markup=False)
        table(console, _HEADS, (_cells(row) for row in sample.queues))

    def live(self) -> None:
        """Draw until the user leaves. Only the first request may fail: later, the view waits for the server."""
        self._sample = self._sampler.take(time.monotonic())
        console = Console(highlight=False)
        try:
            with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
                due_s = time.monotonic()
                while True:
                    live.update(self._draw(*console.size), refresh=True)
                    due_s = max(due_s + self._interval_s, time.monotonic())
                    if not self._wait(due_s, live, console):
                        return
                    self._look()
        except KeyboardInterrupt:
            return

    def _look(self) -> None:
        try:
            self._sample = self._sampler.take(time.monotonic())
        except (TenureError, OSError) as error:
            self._trouble = error.message if isinstance(error, TenureError) else str(error)
            return
        self._trouble = ""
        self._restarts += self._sample.restarted

    def _wait(self, due_s: float, live: Live, console: Console) -> bool:
        """Wait until the next sample is due; return False where the user leaves."""
        while (left_s := due_s - time.monotonic()) > 0:
            if not select.select([sys.stdin], [], [], left_s)[0]:
                break
            key = os.read(sys.stdin.fileno(), 1)
            if key in (b"q", b"Q", b"\x03", b""):
                return False
            if key in (b"s", b"S"):
                names = list(SORTS)
                self._sort = names[(names.index(self._sort) + 1) % len(names)]
                live.update(self._draw(*console.size), refresh=True)
        return True

    def _headline(self, sample: Sample) -> str:
        rates = "  ".join(f"{name} {_number(sample.rates[name])}/s" for name in ("produced", "claimed", "acked"))
        ended = "".join(f"  {name} {sample.totals[name]:,}" for name in ("lost", "returned") if sample.totals[name])
        return f"{self._url}  up {age(sample.uptime_ms)}  {rates}{ended}"

    def _draw(self, width: int, height: int) -> RenderableType:
        sample = self._sample
        assert sample is not None
        head = Text(clean(self._headline(sample)), style="bold")
        status = Text(f"sorted by {self._sort}  ·  s sorts anew  ·  q leaves", style="dim")
        if self._restarts:
            status.append(f"  ·  the server restarted {self._restarts}×")
        if self._trouble:
            status = Text(clean(f"the server is away: {self._trouble}"), style="bold red")
        shown = Table(box=None, header_style="bold", expand=True, style="dim" if self._trouble else "")
        rows = sorted(sample.queues, key=SORTS[self._sort])
        room = max(1, height - _ROOM)
        cells = [[clean(str(cell)) for cell in _cells(row)] for row in rows[:room]]
        columns = fitting(cells, width)
        others = sum(_widths(cells)[column] + 2 for column in columns[1:])
        for name in (_HEADS[column] for column in columns):
            # Only the queue's name is cut: a cut number would be another number.
            room_for = max(1, width - others - 2) if name == _HEADS[0] else None
            right = name.endswith("#")
            shown.add_column(_head(name), justify="right" if right else "left", no_wrap=True, max_width=room_for)
        for row in cells:
            shown.add_row(*(escape(row[column]) for column in columns))
        more = Text(f"and {len(rows) - room:,} more queues" if len(rows) > room else "", style="dim")
        return Group(head, status, shown, more)


def _cells(row: Row) -> tuple[object, ...]:
    oldest = age(row.oldest_ms) if row.oldest_ms is not None else ""
    rates = _number(row.in_rate), _number(row.out_rate)
    depths = row.ready, row.suspects or "", row.in_flight, row.delayed, row.dead
    return row.topic, *depths, oldest, *rates, sparkline(row.depths)


def fitting(rows: list[list[str]], width: int) -> list[int]:
    """Return the columns that fit a terminal: a number is left out rather than cut, because a cut number would be
    another number. The queue's name may be cut. Suspects have a column only where there are any.
    """
    kept = [index for index in range(len(_HEADS)) if index != _SUSPECTS or any(row[index] for row in rows)]
    widths = _widths(rows)
    widths[0] = min(widths[0], _NAME_WIDTH)
    for column in _LEFT_OUT_FIRST:
        if column in kept and sum(widths[index] + 2 for index in kept) > width:
            kept.remove(column)
    return kept


def _widths(rows: list[list[str]]) -> list[int]:
    """Return the width of each column with its head."""
    return [max(cell_len(cell) for cell in column) for column in zip(map(_head, _HEADS), *rows, strict=True)]


def _head(name: str) -> str:
    return name.rstrip("#")


def _number(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"


def sparkline(depths: list[int]) -> str:
    """Format depths as bars, the highest of them full."""
    most = max(depths, default=0)
    return "".join(_BARS[depth * (len(_BARS) - 1) // most] if most else _BARS[0] for depth in depths)


@contextmanager
def _keys() -> Iterator[None]:
    """Read keys one by one without echo within the block, and restore the terminal after it."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
