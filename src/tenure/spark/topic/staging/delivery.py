"""Delivery of a batch into a topic, once: choose the files, append them chunk by chunk, note that it is done.

Every chunk has a number of its own under the writer's client id, and the server keeps the highest number of each
client: it refuses a repeated chunk, with how far the client has come, and the chunk is passed over. That mark survives
a restart of the server; it is forgotten seven days after the client's last append. A batch whose record is nearly that
old and that is not done is therefore not resumed: which of its chunks are there is no longer known.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.client.client import Client
from tenure.client.plan.encode import RecordText
from tenure.errors import Conflict, Corrupt, Indeterminate
from tenure.spark.topic.staging.chunks import decode_chunk
from tenure.spark.topic.staging.directory import Staging
from tenure.spark.topic.staging.record import Batch, Record, StagedFile, client_seq, make_record, parse_client_seq

__all__ = ["RESUME_MS_MAX", "deliver", "resume"]

RESUME_MS_MAX = 6 * 24 * 3600 * 1000
"""The greatest age of an unfinished batch's record: a day less than the server remembers a silent client."""
_ASKED_AGAIN_MAX = 3


def deliver(staging: Staging, client: Client, batch: Batch, files: Sequence[StagedFile]) -> bool:
    """Append the rows of these files as this batch; return False where it was done before, and nothing was appended.

    A record that another attempt left decides, and these files are removed. Raises Conflict (``batch_unfinished``,
    ``resume_expired``), Corrupt (``staged_damaged``), and what an append raises: the batch may then be repeated.
    """
    made = make_record(batch, files)
    if _is_done(staging, batch):
        staging.discard(files)
        return False
    _check_order(staging, batch)
    record = staging.choose(made)
    if record != made:
        staging.discard([file for file in files if file not in record.files])
        _check_age(staging, batch)
    return _complete(staging, client, record)


def resume(staging: Staging, client: Client, batch: Batch) -> bool:
    """Return whether the batch is in the topic; complete one that was chosen, without making its rows again.

    Raises as `deliver`.
    """
    if _is_done(staging, batch):
        return True
    _check_order(staging, batch)
    record = staging.chosen(batch)
    if record is None:
        return False
    _check_age(staging, batch)
    _complete(staging, client, record)
    return True


def _is_done(staging: Staging, batch: Batch) -> bool:
    done = staging.done(batch.writer)
    if done is None:
        return False
    for number in staging.chosen_numbers(batch.writer):
        left = staging.chosen(Batch(batch.writer, number, batch.topic)) if number <= done else None
        if left is not None:  # its driver died while it cleaned up
            staging.forget(left)
    return done >= batch.number


def _check_order(staging: Staging, batch: Batch) -> None:
    """Raise Conflict unless the batch before it is complete: numbers rise."""
    for number in staging.chosen_numbers(batch.writer):
        if number != batch.number:
            raise Conflict(
                f"batch {number} was begun and is not finished, and batch {batch.number} comes instead of it: repeat "
                f"{number} first, or give this writer another identity",
                code="batch_unfinished",
                unfinished=number,
            )


def _check_age(staging: Staging, batch: Batch) -> None:
    age_ms = staging.age_ms(batch)
    if age_ms > RESUME_MS_MAX:
        raise Conflict(
            f"batch {batch.number} was begun {age_ms // 86_400_000} days ago, and the server may have forgotten which "
            f"of its chunks it has: look into the topic, then remove chosen/{batch.writer}/ from the staging directory "
            "to have the whole batch appended, or mark it as done there",
            code="resume_expired",
        )


def _complete(staging: Staging, client: Client, record: Record) -> bool:
    if _is_done(staging, record.batch):  # finished by another driver meanwhile
        return False
    try:
        _append_all(staging, client, record)
    except Corrupt:
        if _is_done(staging, record.batch):  # or while we appended, and its files are removed
            return False
        raise
    staging.finish(record)
    return True


def _append_all(staging: Staging, client: Client, record: Record) -> None:
    batch, held = record.batch, -1
    for number, file, chunk in record.chunks():
        if number <= held:
            continue
        texts = decode_chunk(staging.read(file, chunk), chunk, file.key)
        last = _append(client, batch, texts, number=number)
        if last is not None:
            at_batch, at_chunk = parse_client_seq(last)
            if at_batch > batch.number:  # a later batch began: this one was finished by another driver
                return
            held = at_chunk


def _append(client: Client, batch: Batch, texts: list[RecordText], *, number: int) -> int | None:
    """Append a chunk; return the last number that the server has of this writer where it is there already."""
    seq = client_seq(batch, number)
    for asked in range(1, _ASKED_AGAIN_MAX + 1):
        try:
            client.produce(batch.topic, texts, client_id=batch.writer, client_seq=seq, create=False)
        except Conflict as refusal:
            last = refusal.detail.get("last_client_seq")
            if refusal.code != "idempotency_conflict" or type(last) is not int or last < seq:
                raise
            return last
        except Indeterminate:  # its number makes a second copy harmless, and shows what became of the first
            if asked == _ASKED_AGAIN_MAX:
                raise
        else:
            return None
    raise AssertionError("the last attempt ends the call")
