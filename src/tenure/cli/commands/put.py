"""`tenure put`: put records into a queue, from arguments, a file or a pipe."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console

from tenure.cli.commands.put_input import (
    BATCH_RECORDS,
    Batch,
    from_arguments,
    from_lines,
    lines_are_piped_in,
    open_lines,
)
from tenure.cli.main import OK
from tenure.cli.options import QueueName, Target, duration, on_server
from tenure.cli.progress import Progress
from tenure.cli.remote import ask, reword
from tenure.cli.screen import Payload, Shown, note
from tenure.cli.words import count
from tenure.contract.records import Record
from tenure.errors import Invalid, TenureError

if TYPE_CHECKING:
    from tenure.client.client import Client

__all__ = ["put"]


@on_server
def put(
    queue: QueueName,
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA", help="JSON values; - or nothing reads one per line from a pipe."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Read one value per line from a file.")] = None,
    text: Annotated[bool, typer.Option("--text", help="Take values as text, not as JSON.")] = False,
    tag: Annotated[str | None, typer.Option("--tag", help="A tag for every record.")] = None,
    meta: Annotated[str | None, typer.Option("--meta", help="A JSON object for every record.")] = None,
    delay: Annotated[
        int | None, typer.Option("--delay", parser=duration, metavar="DURATION", help="Hide the jobs until then.")
    ] = None,
    unique: Annotated[
        str | None, typer.Option("--unique", help="A key: while a job with it lives, no second one is made.")
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", help="A key: the same DATA put again with it answers the same seqs."),
    ] = None,
    create: Annotated[bool, typer.Option("--create/--no-create", help="Make the queue if it is not there.")] = True,
    kind: Annotated[str, typer.Option("--type", help="What to make then: queue or log.")] = "queue",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Put records into a queue, in batches of 1000. Each batch is put once, however often it had to be sent."""
    if kind not in ("queue", "log"):
        raise typer.BadParameter("--type is queue or log")
    words = data or (["-"] if file is None and lines_are_piped_in() else [])
    if bool(words) == (file is not None):
        raise typer.BadParameter("give DATA, pipe lines in, or name a --file")
    if "-" in words and len(words) > 1:
        raise typer.BadParameter("- stands alone")
    if unique is not None and (file is not None or words == ["-"] or len(words) > 1):
        raise typer.BadParameter("--unique is for one record")
    if idempotency_key is not None and (file is not None or words == ["-"] or len(words) > BATCH_RECORDS):
        raise typer.BadParameter(f"--idempotency-key is for up to {BATCH_RECORDS} values of DATA: one request, one key")
    options = {"tag": tag, "meta": _meta(meta), "delay_ms": delay or 0, "unique_key": unique}
    config = _config(queue, kind) if create else None

    def find(client: Client) -> Shown:
        putting = _Putting(client, queue, options=options, config=config, key=idempotency_key)
        if words and words != ["-"]:
            return putting.run(from_arguments(words, text=text), unit="argument"), OK
        descriptor, total = open_lines(file)
        try:
            with Progress("put", total=total) as progress:
                return putting.run(from_lines(descriptor, text=text), unit="line", progress=progress), OK
        finally:
            if file is not None:
                os.close(descriptor)

    raise typer.Exit(ask(target, find, _show, as_json=as_json, patient=True))


def _meta(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        msgspec.json.decode(text.encode(), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise typer.BadParameter(f"--meta must be a JSON object: {error}") from None
    return text.encode()


def _config(topic: str, kind: str) -> Mapping[str, Any]:
    """Return the config for a missing topic: a queue with the safe defaults of a worker's."""
    from tenure.client.config import careful_queue

    return careful_queue(topic) if kind == "queue" else {"type": kind}


class _Putting:
    """One run of the command: its batches and its result."""

    def __init__(
        self,
        client: Client,
        queue: str,
        *,
        options: dict[str, Any],
        config: Mapping[str, Any] | None,
        key: str | None = None,
    ) -> None:
        self._client = client
        self._queue = queue
        self._options = options
        self._config = config
        self._key = key
        self._found: Payload = {
            "topic": queue,
            "count": 0,
            "first_seq": None,
            "last_seq": None,
            "created": False,
            "deduped": False,
        }

    def run(self, batches: Iterator[Batch], *, unit: str, progress: Progress | None = None) -> Payload:
        """Put all batches. An error contains how far it got: everything before that is in the queue, and
        nothing after.
        """
        reached = 0
        try:
            for batch in batches:
                self._put(batch)
                reached = batch.last
                if progress is not None:
                    progress.update(batch.read_bytes, f"{self._found['count']:,} records")
        except KeyboardInterrupt:
            note(f"interrupted: {count(self._found['count'], 'record')} went in for sure, up to {unit} {reached:,}")
            raise
        except TenureError as error:
            if not reached:
                raise
            message = f"{error.message}; {count(self._found['count'], 'record')} went in before: go on from {unit}"
            more = {"put": self._found["count"], "reached": reached}
            raise reword(error, f"{message} {reached + 1:,}", **more) from error
        if not self._found["count"]:
            raise Invalid("there was nothing to put: no line with a value in it")
        return self._found

    def _put(self, batch: Batch) -> None:
        """Put one batch under an idempotency key, which expires after minutes; a client mark would stay for days."""
        produced = self._client.produce(
            self._queue,
            [Record(data=value, **self._options) for value in batch.values],
            idempotency_key=self._key or f"cli-{uuid.uuid4().hex}",
            create=self._config is not None,
            config=self._config,
        )
        found = self._found
        found["count"] += produced.count
        found["first_seq"] = found["first_seq"] or produced.first_seq
        found["last_seq"] = produced.last_seq
        found["created"] = found["created"] or produced.created
        if self._options["unique_key"] is not None or self._key is not None:
            found["deduped"] = produced.deduped


def _show(console: Console, found: Payload) -> None:
    first, last, topic = found["first_seq"], found["last_seq"], found["topic"]
    seqs = f"seq {first}" if first == last else f"seqs {first} to {last}"
    if found["deduped"]:
        console.print(f"{topic}: this key is there already, {seqs}", markup=False)
        return
    made = " (created)" if found["created"] else ""
    console.print(f"put {count(found['count'], 'record')} into {topic}{made}, {seqs}", markup=False)
