"""Records: append, read, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.json import Decoder

from tenure.client.calls.calling import posting, tell
from tenure.client.config import check_config
from tenure.client.plan.encode import body_of, path_of, query_of, records_text, seqs_of
from tenure.client.plan.retry import Answered, Repeat, exchange, reply_of
from tenure.client.plan.session import Core
from tenure.client.plan.steps import Plan, Take
from tenure.client.transport.wire import Request
from tenure.contract.names import check_client_id, check_key, check_node
from tenure.contract.replies import DeletedRecords, Diff, Produced
from tenure.errors import Conflict, Invalid

__all__ = ["delete_records", "diff", "produce"]

_produced = Decoder(Produced)
_diff = Decoder(Diff)
_deleted = Decoder(DeletedRecords)


def produce(
    core: Core,
    topic: str,
    records: Iterable[Any],
    *,
    node: str | None = None,
    idempotency_key: str | None = None,
    client_id: str | None = None,
    client_seq: int | None = None,
    create: bool = True,
    config: Mapping[str, Any] | None = None,
) -> Plan[Produced]:
    """Append records, all or none, once: a lost answer is asked for again and never appends twice.

    A `tenure.Record` or bytes is JSON text, anything else is encoded. Without a key or a mark of the caller's, the call
    goes over a lane. Raises Invalid, NotFound, Denied, Conflict, Overloaded, Closed, Indeterminate.
    """
    path = query_of(path_of(topic), return_seqs=False)
    _check_names(node, idempotency_key, client_id, client_seq)
    if config is not None:
        check_config(config, topic=topic)
    text = records_text(records)
    more: dict[str, Any] = {
        "node": node,
        "idempotency_key": idempotency_key,
        "config": config,
        "create": None if create else False,
    }
    if idempotency_key is not None or client_id is not None:
        more |= {"client_id": client_id, "client_seq": client_seq}
        return (yield from _append(core, topic, path, _body(text, more)))
    lane = yield Take(core.lanes, core.settings.acquire_ms)
    try:
        more |= {"client_id": lane.client_id, "client_seq": lane.advance()}
        return (yield from _append(core, topic, path, _body(text, more)))
    finally:
        core.lanes.give(lane)


def _check_names(node: str | None, key: str | None, client_id: str | None, client_seq: int | None) -> None:
    if node is not None:
        check_node(node)
    if key is not None:
        check_key(key)
    if (client_id is None) != (client_seq is None):
        raise Invalid("client_id and client_seq go together")
    if client_id is not None:
        check_client_id(client_id)
        if type(client_seq) is not int or not 0 <= client_seq < 1 << 63:
            raise Invalid("client_seq must be an integer from 0 to 2**63 - 1", field="client_seq")


def _body(records: bytes, more: Mapping[str, Any]) -> bytes:
    rest = body_of(more)
    return b'{"records":%b%b}' % (records, b"," + rest[1:-1] if len(rest) > 2 else b"")


def _append(core: Core, topic: str, path: str, body: bytes) -> Plan[Produced]:
    answered = yield from exchange(core, Request("POST", path, body), Repeat.SAFE)
    earlier = _earlier_copy(topic, answered)
    return earlier if earlier is not None else reply_of(_produced, answered, Repeat.SAFE)


def _earlier_copy(topic: str, answered: Answered) -> Produced | None:
    """What our own lost copy got, where a later one was refused because of it; else None.

    The refusal names the seqs only where our number is the last one of its client, so nobody else's append is taken
    for ours.
    """
    refusal = answered.refusal
    if not isinstance(refusal, Conflict) or refusal.code != "idempotency_conflict":
        return None
    first, last = refusal.detail.get("first_seq"), refusal.detail.get("last_seq")
    if type(first) is not int or type(last) is not int or "last_client_seq" not in refusal.detail:
        return None
    return Produced(topic, first, last, last - first + 1, deduped=True, head_seq=last)


def diff(
    core: Core,
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
    fields = {
        "from_seq": from_seq,
        "limit": limit,
        "node": node,
        "include_tags": include_tags,
        "include_meta": include_meta,
        "wait_ms": wait_ms,
    }
    found, _ = yield from tell(core, posting(path_of(topic, "diff"), fields, wait_ms=wait_ms), _diff, Repeat.READ)
    return found


def delete_records(
    core: Core,
    topic: str,
    *,
    before_seq: int | None = None,
    match: str | Sequence[str] | None = None,
    seqs: Iterable[int] | None = None,
) -> Plan[DeletedRecords]:
    """Remove records for good; several conditions are ANDed. Never repeated after a lost answer."""
    if before_seq is None and match is None and seqs is None:
        raise Invalid("say what to delete: before_seq, match or seqs")
    fields = {"before_seq": before_seq, "match": match, "seqs": None if seqs is None else seqs_of(seqs)}
    deleted, _ = yield from tell(core, posting(path_of(topic, "delete"), fields), _deleted, Repeat.NEVER)
    return deleted
