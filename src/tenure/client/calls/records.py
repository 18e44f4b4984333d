"""Records: append, read and delete them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from msgspec.json import Decoder
from msgspec.structs import replace

from tenure.client.calls.requests import call, request_of
from tenure.client.config import check_config
from tenure.client.plan.encode import encode_body, list_match, list_seqs, path_of, records_text
from tenure.client.plan.retry import Answered, exchange, reply_of
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan, Take
from tenure.client.transport.wire import Request
from tenure.contract.bodies import DiffBody
from tenure.contract.commands import AppendFields, DeleteRecords
from tenure.contract.names import check_client_id, check_key, check_node
from tenure.contract.options import AppendOptions
from tenure.contract.repeat import Repeat
from tenure.contract.replies import DeletedRecords, Diff, Produced
from tenure.errors import Conflict, Invalid

__all__ = ["delete_records", "diff", "produce"]

_produced = Decoder(Produced)
_diff = Decoder(Diff)
_deleted = Decoder(DeletedRecords)


def produce(session: Session, topic: str, records: Iterable[Any], **options: Unpack[AppendOptions]) -> Plan[Produced]:
    """Append records, all or none, once: a lost answer is asked for again and never appends twice.

    A `tenure.Record` or bytes is JSON text, anything else is encoded. Without a key or a mark of the caller's, the call
    goes over a lane. Raises Invalid, NotFound, Denied, Conflict, Overloaded, Closed, Indeterminate.
    """
    path = f"{path_of(topic)}?return_seqs=false"
    fields = AppendFields(**options)
    _check_fields(fields, topic=topic)
    text = records_text(records)
    if fields.idempotency_key is not None or fields.client_id is not None:
        return (yield from _append(session, topic, path, _body(text, fields)))
    lane = session.lanes.take() or (yield Take(session.lanes, session.settings.acquire_ms))
    try:
        marked = replace(fields, client_id=lane.client_id, client_seq=lane.advance())
        return (yield from _append(session, topic, path, _body(text, marked)))
    finally:
        session.lanes.give(lane)


def _check_fields(fields: AppendFields, *, topic: str) -> None:
    """Raise Invalid for a field that no server takes."""
    if fields.node is not None:
        check_node(fields.node)
    if fields.idempotency_key is not None:
        check_key(fields.idempotency_key)
    if (fields.client_id is None) != (fields.client_seq is None):
        raise Invalid("client_id and client_seq go together")
    if fields.client_id is not None:
        check_client_id(fields.client_id)
        if type(fields.client_seq) is not int or not 0 <= fields.client_seq < 1 << 63:
            raise Invalid("client_seq must be an integer from 0 to 2**63 - 1", field="client_seq")
    if fields.config is not None:
        check_config(fields.config, topic=topic)


def _body(records: bytes, fields: AppendFields) -> bytes:
    rest = encode_body(fields)
    return b'{"records":%b%b}' % (records, b"," + rest[1:-1] if len(rest) > 2 else b"")


def _append(session: Session, topic: str, path: str, body: bytes) -> Plan[Produced]:
    answered = yield from exchange(session, Request("POST", path, body), AppendFields.repeat)
    earlier = _earlier_copy(topic, answered)
    return earlier if earlier is not None else reply_of(_produced, answered, AppendFields.repeat)


def _earlier_copy(topic: str, answered: Answered) -> Produced | None:
    """Return the reply to our own lost copy, where a later copy was refused because of it; else None.

    The refusal names the seqs only where our number is the last one of its client, so the append of another producer
    is never taken for ours.
    """
    refusal = answered.refusal
    if not isinstance(refusal, Conflict) or refusal.code != "idempotency_conflict":
        return None
    first, last = refusal.detail.get("first_seq"), refusal.detail.get("last_seq")
    if type(first) is not int or type(last) is not int or "last_client_seq" not in refusal.detail:
        return None
    return Produced(topic, first, last, last - first + 1, deduped=True, head_seq=last)


def diff(
    session: Session,
    topic: str,
    *,
    from_seq: int = 0,
    limit: int = 256,
    node: str | Sequence[str] | None = None,
    include_tags: bool = False,
    include_meta: bool = True,
    wait_ms: int = 0,
) -> Plan[Diff]:
    """Read records above ``from_seq``, but for those that ``node`` wrote; with ``wait_ms``, wait for one to come."""
    body = DiffBody(
        from_seq=from_seq,
        limit=limit,
        node=node if node is None or isinstance(node, str) else list(node),
        include_tags=include_tags,
        include_meta=include_meta,
        wait_ms=wait_ms,
    )
    request = request_of(path_of(topic, "diff"), body, wait_ms=wait_ms)
    found, _ = yield from call(session, request, _diff, Repeat.READ)
    return found


def delete_records(
    session: Session,
    topic: str,
    *,
    before_seq: int | None = None,
    match: str | Sequence[str] | None = None,
    seqs: Iterable[int] | None = None,
) -> Plan[DeletedRecords]:
    """Remove records for good; several conditions are ANDed. Never repeated after a lost answer."""
    if before_seq is None and match is None and seqs is None:
        raise Invalid("say what to delete: before_seq, match or seqs")
    listed = None if seqs is None else list_seqs(seqs)
    command = DeleteRecords(before_seq=before_seq, match=list_match(match), seqs=listed)
    deleted, _ = yield from call(session, request_of(path_of(topic, "delete"), command), _deleted, command.repeat)
    return deleted
