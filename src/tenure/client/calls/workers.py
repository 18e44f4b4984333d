"""Hello: the call of a worker that starts, perhaps in the place of processes that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.json import Decoder
from msgspec.structs import replace

from tenure.client.calls.requests import call, request_of
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan
from tenure.contract.bodies import Gone, HelloBody
from tenure.contract.repeat import Repeat
from tenure.contract.replies import HelloReply

__all__ = ["hello"]

_SEQS_MAX: Final = 2_000
"""How many jobs one request names at most, unless they are of one queue: a server takes 64 KiB."""

_hello = Decoder(HelloReply)


def hello(
    session: Session,
    queues: Sequence[str],
    *,
    node: str | None = None,
    group: str | None = None,
    host: str = "",
    version: str = "",
    held: int = 0,
    gone: Sequence[Gone] = (),
) -> Plan[HelloReply]:
    """Say that a worker starts, at which queues, and which processes it takes the place of: what they had begun is
    lost, and what else they held is given back at once.
    """
    body = HelloBody(
        node=session.node_or(node),
        queues=list(queues),
        group=group,
        host=host,
        version=version,
        held=held,
        gone=list(gone),
    )
    returns, suspects = False, dict[str, int]()
    for part in _parts(body):
        answer, _ = yield from call(session, request_of("/v0/workers/hello", part), _hello, Repeat.SAFE)
        returns, suspects = answer.returns, suspects | answer.suspects
    return HelloReply(returns, suspects)


def _parts(body: HelloBody) -> list[HelloBody]:
    """Return a hello in as many requests as it takes: one, or one for each queue where many jobs were begun."""
    if sum(len(seqs) for gone in body.gone for seqs in gone.begun.values()) <= _SEQS_MAX:
        return [body]
    queues = dict.fromkeys([*body.queues, *(queue for gone in body.gone for queue in gone.begun)])
    return [
        replace(body, queues=[queue], gone=[replace(gone, begun=_of(gone, queue)) for gone in body.gone])
        for queue in queues
    ]


def _of(gone: Gone, queue: str) -> dict[str, list[int]]:
    return {queue: gone.begun[queue]} if queue in gone.begun else {}
