"""POST /v0/workers/hello: a worker starts, and says which processes it takes the place of.

The jobs that a process had begun when it ended are lost; what else it held is given back at once, and is no try.
"""

from __future__ import annotations

import asyncio
import logging

from tenure.broker.broker import Broker
from tenure.contract.bodies import Gone, HelloBody
from tenure.contract.names import check_node, check_topic_name
from tenure.contract.replies import EndedNode, HelloReply
from tenure.errors import Conflict, NotFound
from tenure.http.api.app import Call, Route
from tenure.http.api.auth import check_name
from tenure.http.api.body import Reader
from tenure.http.api.context import Context
from tenure.http.api.render import as_fields
from tenure.http.wire.message import Response

__all__ = ["ROUTES"]

logger = logging.getLogger("tenure.http")

_read_hello = Reader(HelloBody).read


async def hello(context: Context, call: Call) -> Response:
    """End what the processes held that are gone; say whether tries are kept apart, and where suspects wait."""
    body = _read_hello(call.request)
    check_node(body.node)
    queues = dict.fromkeys(body.queues)
    for gone in body.gone:
        check_node(gone.node)
        queues.update(dict.fromkeys(gone.begun))
    for name in queues:
        check_name(call, check_topic_name(name))
    broker = context.broker
    if broker.keeps_tries:
        for gone in body.gone:
            await _end(broker, gone, body)
            await asyncio.sleep(0)  # each may name a thousand queues, and most have nothing to wait for
    suspects = {name: count for name in queues if (count := broker.suspects(name))}
    return as_fields(call, HelloReply(broker.keeps_tries, suspects), 0.0)


async def _end(broker: Broker, gone: Gone, body: HelloBody) -> None:
    """End what one process held on the queues of its successor and on those where it had begun jobs, and log it."""
    lost = returned = 0
    for name in dict.fromkeys((*body.queues, *gone.begun)):
        try:
            ended: EndedNode = await broker.end_node(
                name, node=gone.node, seqs=gone.begun.get(name, ()), exit_code=gone.exit_code
            )
        except (NotFound, Conflict):  # deleted, or made again as a log
            continue
        lost, returned = lost + ended.lost, returned + ended.returned
    how = "" if gone.exit_code is None else f" with exit code {gone.exit_code}"
    logger.info(  # quoted: the caller chose these texts
        "worker %r ended%s, says %r (host %r, version %r): %d jobs that it had begun are lost, %d others given back",
        *(gone.node, how, body.node, body.host, body.version, lost, returned),
    )


ROUTES = [
    Route(
        "POST",
        "/v0/workers/hello",
        hello,
        frozenset({"write"}),
        HelloBody,
        "A worker starts, in the place of others that have ended",
    ),
]
