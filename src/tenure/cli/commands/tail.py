"""`tenure tail`: print records, or lifecycle events of jobs, as they come; it waits while the server restarts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tenure.cli.main import OK
from tenure.cli.options import Target, on_server
from tenure.cli.remote import open_client, plain, report_refusal
from tenure.cli.screen import line, note
from tenure.cli.words import clean, format_runs, when
from tenure.errors import Closed, Indeterminate, Overloaded, TenureError

if TYPE_CHECKING:
    from tenure.client.client import Client
    from tenure.contract.replies import Diff, Lifecycle, ReadRecord, Tombstone

__all__ = ["tail"]

_WAIT_MS: Final = 20_000
_PAGE: Final = 256
_PAUSE_S: Final = 0.5


@on_server
def tail(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A queue, or any topic.", show_default=False)],
    from_seq: Annotated[
        int | None, typer.Option("--from", min=0, help="Begin with this seq.", show_default=False)
    ] = None,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="Else begin with that many before the end.")] = 10,
    events: Annotated[
        bool, typer.Option("--events", help="What happens to the jobs from now on, in place of records.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", "-f", help="Go on until interrupted.")] = True,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Print records as they come, one a line; with --json each is a JSON line. No gap and no repeat over a restart."""
    if events and (not follow or from_seq is not None):
        raise typer.BadParameter("--events are told as they happen: there is no --from and no --no-follow")
    try:
        with open_client(target) as client:
            if events:
                _events(client, topic, as_json=as_json)
            else:
                _Reader(client, topic, as_json=as_json).run(from_seq, last=last, follow=follow)
    except (TenureError, OSError) as error:
        raise typer.Exit(report_refusal(target, error, as_json=as_json)) from None
    raise typer.Exit(OK)


class _Reader:
    """One reader of a topic, with its cursor."""

    def __init__(self, client: Client, topic: str, *, as_json: bool) -> None:
        self._client = client
        self._topic = topic
        self._as_json = as_json
        self._cursor = 0
        self._away = False

    def run(self, from_seq: int | None, *, last: int, follow: bool) -> None:
        """Print the records that are there and, with ``follow``, those that come."""
        info = self._client.topic(self._topic, touch=False)
        head = info.head_seq
        # Records gone before our first one are no gap, unless they were asked for by --from.
        start = max(head - last, info.earliest_seq - 1) if from_seq is None else from_seq - 1
        self._cursor = max(0, start)
        while follow or self._cursor < head:
            found = self._read(wait_ms=_WAIT_MS if follow else 0)
            if found is None:
                continue
            if found.tombstone is not None:
                self._report_gap(found.tombstone)
            for record in found.records:
                self._print(record)
            if found.next_from_seq == self._cursor and not follow:
                return
            self._cursor = found.next_from_seq

    def _read(self, *, wait_ms: int) -> Diff | None:
        """Return the next page; None while the server is away, which is reported once."""
        try:
            found = self._client.diff(
                self._topic, from_seq=self._cursor, limit=_PAGE, wait_ms=wait_ms, include_tags=True
            )
        except (Overloaded, Indeterminate, Closed) as error:
            if not wait_ms:
                raise
            if not self._away:
                note(f"{error.message}: waiting for the server")
            self._away = True
            time.sleep(_PAUSE_S)
            return None
        if self._away:
            note("the server is back")
        self._away = False
        return found

    def _report_gap(self, gap: Tombstone) -> None:
        if self._as_json:
            line({"tombstone": plain(gap)})
        else:
            note(f"seqs {gap.gap_from} to {gap.gap_to} are gone ({gap.reason})")

    def _print(self, record: ReadRecord) -> None:
        if self._as_json:
            line(plain(record))
            return
        tag = f" [{record.tag}]" if record.tag is not None else ""
        data = bytes(record.data).decode() if record.data is not None else ""
        print(clean(f"{record.seq} {when(record.ts)}{tag} {data}"), flush=True)


def _events(client: Client, topic: str, *, as_json: bool) -> None:
    """Print events until interrupted. The stream itself waits for a server, so a first call checks that one answers."""
    from tenure.contract.replies import Gap

    client.topic(topic, touch=False)
    with client.events(topic) as events:
        for event in events:
            if isinstance(event, Gap):
                line({"gap": plain(event)}) if as_json else note(f"some events were missed ({event.reason})")
            elif as_json:
                line(plain(event))
            else:
                print(clean(_format_event(event)), flush=True)


def _format_event(event: Lifecycle) -> str:
    """Format an event on one line: time, event, jobs, and the other fields that are set."""
    about = {name: getattr(event, name) for name in ("node", "lease_id", "deliveries", "reason", "dest")}
    words = [f"{name}={value}" for name, value in about.items() if value is not None]
    return " ".join([when(event.ts), event.event, format_runs(event.runs), *words])
