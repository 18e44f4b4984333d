"""The table of who may do what: a row for each operation of ``/openapi.json``, and for each body that names a topic.

`test_auth_rows.py` calls each row with every set of scopes, with and without a prefix, and without a key. It fails for
an operation without a row and for a row without an operation. In queries and bodies ``NS`` stands for ``mine``, the
names that the keys with a prefix reach, and for ``other``, those of another tenant.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

__all__ = ["BODIES", "NO_NAMES", "ROWS", "Named", "Row"]

Concerns = Literal["name", "body", "listing", "server", "nothing"]


class Row(NamedTuple):
    """Who is admitted to an operation, and the status of an admitted call.

    ``scopes`` are all needed; without any the operation is open. ``concerns`` decides for a key with prefixes:

    - ``name``: the path has a name, which has to be within them (else 403).
    - ``body``: the body has names, which have to be within them (else 403); `BODIES` has a row for each.
    - ``listing``: admitted, and the answer shows only what is within them.
    - ``server``: concerns all names, so it is 403 for any key with prefixes.
    - ``nothing``: no name at all: admitted.
    """

    operation: str
    scopes: str
    concerns: Concerns
    admitted: int = 200
    query: str = ""
    body: str | None = None


ROWS: Final = (
    # operation, scopes, what it concerns, the status when admitted
    Row("GET /", "", "nothing"),
    Row("GET /console/{file}", "", "nothing"),
    Row("GET /console/{folder}/{file}", "", "nothing", 404),
    Row("GET /healthz", "", "nothing"),
    Row("GET /openapi.json", "", "nothing"),
    Row("GET /readyz", "", "nothing"),
    Row("GET /v0/health", "", "nothing"),
    Row("GET /v0/leader", "", "nothing"),
    Row("GET /v0/ready", "", "nothing"),
    Row("GET /v0/key", "read", "nothing"),
    Row("GET /v0/cluster", "read", "nothing"),
    Row("GET /v0/upgrade", "read", "nothing"),
    Row("GET /v0/watch/{wid}", "read", "nothing", 404),
    Row("POST /v0/_test/advance", "admin", "server", body='{"ms": 0}'),
    Row("POST /v0/cluster/handover", "admin", "server", 409, body="{}"),
    Row("POST /v0/upgrade/finalize", "admin", "server"),
    Row("GET /v0/metrics", "read", "listing"),
    Row("GET /v0/routers", "read", "listing"),
    Row("GET /v0/routers", "read", "listing", query="prefix=NS."),
    Row("GET /v0/routers", "read", "listing", query="source=NS.q"),
    Row("GET /v0/routers", "read", "listing", query="dest=NS.q"),
    Row("GET /v0/topics", "read", "listing", query="meters=true"),
    Row("GET /v0/topics", "read", "listing", query="prefix=NS.&contains=q"),
    Row("POST /v0/watch", "read", "body", body='{"topics": {"NS.q": {}}}'),
    Row("POST /v0/workers/hello", "write", "body", body='{"node": "n", "queues": ["NS.q"]}'),
    Row("PUT /v0/routers/{r}", "admin", "name", body='{"source": "NS.q", "dest": "NS.copy"}'),
    Row("GET /v0/routers/{r}", "read", "name"),
    Row("DELETE /v0/routers/{r}", "delete", "name"),
    Row("PUT /v0/topics/{topic}", "admin", "name", body='{"type": "queue"}'),
    Row("PATCH /v0/topics/{topic}", "admin", "name", body='{"ttl_ms": 60000}'),
    Row("GET /v0/topics/{topic}", "read", "name"),
    Row("DELETE /v0/topics/{topic}", "delete", "name"),
    Row("POST /v0/topics/{topic}", "write", "name", body='{"records": [{"data": 1}]}'),
    Row("POST /v0/topics/{topic}/ack", "write", "name", body='{"node": "n", "seqs": [1]}'),
    Row("POST /v0/topics/{topic}/begin", "write", "name", 412, body='{"node": "n", "seq": 1, "lease_id": "lease_x"}'),
    Row("POST /v0/topics/{topic}/claim", "read write", "name", body='{"node": "n"}'),
    Row("POST /v0/topics/{topic}/delete", "delete", "name", body='{"before_seq": 1}'),
    Row("POST /v0/topics/{topic}/diff", "read", "name", body="{}"),
    Row("GET /v0/topics/{topic}/events", "read", "name"),
    Row("POST /v0/topics/{topic}/extend", "write", "name", body='{"node": "n", "seqs": [1], "lease_ms": 1}'),
    Row("GET /v0/topics/{topic}/jobs", "read", "name"),
    Row("GET /v0/topics/{topic}/jobs/{seq}", "read", "name"),
    Row("GET /v0/topics/{topic}/leases", "read", "name"),
    Row("GET /v0/topics/{topic}/meters", "read", "name"),
    Row("POST /v0/topics/{topic}/nack", "write", "name", body='{"node": "n", "seqs": [1]}'),
    Row("POST /v0/topics/{topic}/redrive", "admin", "name", body="{}"),
    Row("POST /v0/topics/{topic}/return", "write", "name", body='{"node": "n", "seqs": [1]}'),
    Row("GET /v0/topics/{topic}/strip", "read", "name"),
    Row("GET /v0/topics/{topic}/work", "read write", "name", query="node=n"),
    Row("DELETE /v0/topics/{topic}/work", "read write", "name", query="node=n"),
)


class Named(NamedTuple):
    """A body with a name in ``field``: with ``mine`` it is admitted for a key with that prefix, with ``other`` 403.

    ``field`` is its place in the schema: ``.*`` for the names of an object's members, ``[]`` for the items of an array.
    """

    operation: str
    field: str
    body: str
    admitted: int = 200


BODIES: Final = (
    Named("PUT /v0/routers/{r}", "source", '{"source": "NS.q", "dest": "mine.copy"}'),
    Named("PUT /v0/routers/{r}", "dest", '{"source": "mine.q", "dest": "NS.copy"}'),
    Named("PUT /v0/topics/{topic}", "dead_letter", '{"type": "queue", "dead_letter": "NS.dead"}'),
    Named("PATCH /v0/topics/{topic}", "dead_letter", '{"dead_letter": "NS.dead"}'),
    Named(
        "POST /v0/topics/{topic}",
        "config.dead_letter",
        '{"records": [{"data": 1}], "config": {"type": "queue", "dead_letter": "NS.dead"}}',
    ),
    Named("POST /v0/topics/{topic}/redrive", "to", '{"to": "NS.work"}'),
    Named("POST /v0/watch", "topics.*", '{"topics": {"NS.q": {}}}'),
    Named("POST /v0/watch", "topics.*", '{"topics": {"mine.q": {}, "NS.log": {}}}'),
    Named("POST /v0/workers/hello", "queues[]", '{"node": "n", "queues": ["mine.q", "NS.q"]}'),
    Named(
        "POST /v0/workers/hello",
        "gone[].begun.*",
        '{"node": "n", "queues": ["mine.q"], "gone": [{"node": "m", "begun": {"NS.q": [1]}}]}',
    ),
)

NO_NAMES: Final = {
    "AdvanceBody": "",
    "HandOverBody": "to",  # the address of a server
    "RouterFields": "filter filter[]",
    "ConfigBody": "",
    "PatchBody": "",
    # What a client writes into data and meta is never taken for a name of the server's.
    "AppendBody": "records[].data records[].tag records[].node records[].meta.* records[].unique_key node "
    "idempotency_key client_id",
    "Ack": "node lease_ids[] lease_id",
    "Begin": "node lease_id",
    "Claim": "node claim_id group",
    "DeleteRecords": "match match[]",
    "DiffBody": "node node[]",
    "Extend": "node lease_ids[] lease_id",
    "Nack": "node lease_ids[] lease_id reason",
    "Return": "node lease_ids[] lease_id reason",
    "RedriveFields": "match match[] reason_like",
    "WatchBody": "node node[]",
    "HelloBody": "node group host version gone[].node",
}
"""The texts in each body that name no topic and no router. Any other text needs a row in `BODIES`."""
