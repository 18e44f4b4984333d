"""Every operation of ``/openapi.json`` × every key × a name within its prefix and one beyond (faults 46, 47).

The calls are made from the document, so a new route is called before anybody thinks of it, and what they must be
answered is in the table of `auth_rows.py`. A refused call has changed nothing and shows nothing of another tenant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, Final, NamedTuple

import pytest

from tenure import Broker
from tenure.http.api.keys import SCOPES
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tenure.testing.clock import ManualClock
from tests.http.auth_rows import BODIES, NO_NAMES, ROWS, Named, Row
from tests.http.conftest import Reply, Site

MINE, OTHER, ABSENT = "mine", "other", "other.absent"
SECRET = "the-payload-of-another-tenant"
SETTINGS = ServerSettings(test_clock=True)
VALUES: Final = {"seq": "1", "wid": "wid_0123456789abcdefghijkl", "folder": "views", "file": "app.js"}
REFUSED: Final = {401: "unauthorized", 403: "forbidden"}


class Caller(NamedTuple):
    """A key as a caller presents it; ``scopes`` is None without a key that the server knows."""

    token: str
    scopes: frozenset[str] | None
    has_prefix: bool = False

    @property
    def headers(self) -> dict[str, str]:
        given = {"host": "queue.example", "accept": "text/event-stream, application/json"}
        return given | ({"authorization": f"Bearer {self.token}"} if self.token else {})


def scope_sets() -> Iterator[tuple[str, ...]]:
    for count in range(1, len(SCOPES) + 1):
        yield from combinations(sorted(SCOPES), count)


PLAIN = [Caller(f"plain-{'-'.join(scopes)}", frozenset(scopes)) for scopes in scope_sets()]
TENANTS = [Caller(f"tenant-{'-'.join(scopes)}", frozenset(scopes), True) for scopes in scope_sets()]
STRANGERS = [Caller(token, None) for token in ("", "wrong", "plain-rea", "plain-readd", "PLAIN-READ", "plain-read x")]
CALLERS = [*STRANGERS, *PLAIN, *TENANTS]
ROOT, TENANT = PLAIN[-1], TENANTS[-1]


def key_text(caller: Caller) -> str:
    scopes = "+".join(sorted(caller.scopes or ()))
    return f"{caller.token}:{scopes}" + (f":{MINE}." if caller.has_prefix else "")


ENVIRONMENT = {"TENURE_API_KEYS": ",".join(map(key_text, [*PLAIN, *TENANTS]))}


def document() -> Any:
    """The document of a server with every route that there is."""
    made = Service(SETTINGS, environment={}).context.openapi
    assert made is not None
    return json.loads(made())


DOCUMENT: Final = document()


def operations() -> dict[str, Any]:
    paths = DOCUMENT["paths"].items()
    return {f"{method.upper()} {path}": operation for path, methods in paths for method, operation in methods.items()}


@pytest.fixture
async def make_site(clock: ManualClock, broker: Broker) -> Callable[..., Site]:
    """A whole server with a key for every set of scopes, and two tenants' names on it."""
    for namespace in (MINE, OTHER):
        await broker.put_topic(f"{namespace}.q", {"type": "queue"})
        for topic in (f"{namespace}.q", f"{namespace}.log"):
            await broker.produce(topic, [f'"{SECRET if namespace == OTHER else MINE}"'.encode()])
        await broker.put_topic(f"{namespace}.work", {"type": "queue"})
        await broker.put_router(f"{namespace}.r", source=f"{namespace}.q", dest=f"{namespace}.copy")
    await broker.put_topic("mine.crossed", {"type": "queue", "dead_letter": "other.dead"})
    await broker.put_router("mine.cross", source="mine.crossed", dest="other.copy")

    def make() -> Site:
        service = Service(SETTINGS, environment=ENVIRONMENT)
        service.context.set_broker(broker)
        service.context.openapi = lambda: b'{"performance": {"server_total_ms": 0}}'  # as `Site` wants every answer
        return Site(service.app, broker, clock)

    return make


# The table is complete


def test_every_operation_has_a_row_and_every_row_an_operation() -> None:
    known, rows = set(operations()), {row.operation for row in ROWS}
    new = "\n".join(f'    Row("{operation}", "<scopes>", "<concerns>"),' for operation in sorted(known - rows))
    assert not new, f"state in ROWS of tests/http/auth_rows.py who may call the new operations:\n{new}"
    assert not rows - known, f"ROWS of tests/http/auth_rows.py has operations that are gone: {sorted(rows - known)}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.operation} {row.query}")
def test_the_document_states_the_scopes_of_the_row(row: Row) -> None:
    stated = {scope for entry in operations()[row.operation]["security"] for scope in entry.get("key", ())}
    assert stated == set(row.scopes.split())


def test_a_row_says_name_where_the_path_has_one() -> None:
    for row in ROWS:
        has_name = bool(set(re.findall(r"\{(\w+)}", row.operation)) - set(VALUES))
        assert (row.concerns == "name") == has_name, row.operation


def texts(schema: Any, place: str = "") -> Iterator[str]:
    """Yield the places of a schema where a caller gives a text: any of them might name a topic."""
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for variant in schema.get("anyOf", ()):
        yield from texts(variant, place)
    types = schema.get("type", [] if "anyOf" in schema or "enum" in schema else ["string"])
    for kind in [types] if isinstance(types, str) else types:
        if kind == "string":
            yield place
        elif kind == "array":
            yield from texts(schema.get("items", {}), f"{place}[]")
        elif kind == "object":
            for name, field in schema.get("properties", {}).items():
                yield from texts(field, f"{place}.{name}" if place else name)
            members = schema.get("additionalProperties", {} if "properties" not in schema else None)
            if members is not None:
                yield f"{place}.*"
                yield from texts(members, f"{place}.*") if members else ()


def test_every_text_of_a_body_has_a_row_or_is_no_name() -> None:
    for operation, stated in operations().items():
        if "requestBody" not in stated:
            continue
        schema = stated["requestBody"]["content"]["application/json"]["schema"]
        body = schema["$ref"].rpartition("/")[2]
        no_names, rows = set(NO_NAMES[body].split()), {row.field for row in BODIES if row.operation == operation}
        places = set(texts(schema))
        for place in sorted(places):
            assert place in no_names | rows, (
                f"{operation} takes a text in {place}: if it names a topic, add a row to BODIES of "
                f"tests/http/auth_rows.py, otherwise add it to NO_NAMES[{body!r}]"
            )
        assert rows.isdisjoint(no_names)
        assert rows | no_names <= places, f"{body} has no such field any more: {sorted((rows | no_names) - places)}"


# What the rows say


def target_of(row: Row | Named, namespace: str) -> tuple[str, str, bytes | None]:
    """Return method, target and body of a row's call about the names of one tenant."""
    method, _, path = row.operation.partition(" ")
    names = (
        {"topic": f"{namespace}.q", "r": f"{namespace}.r"} if namespace != ABSENT else {"topic": ABSENT, "r": ABSENT}
    )
    target = re.sub(r"\{(\w+)}", lambda found: (VALUES | names)[found[1]], path)
    query = getattr(row, "query", "").replace("NS", namespace)
    body = None if row.body is None else row.body.replace("NS", namespace).encode()
    return method, f"{target}?{query}" if query else target, body


def expected(row: Row, caller: Caller, namespace: str) -> int:
    """Return the status that the table states for a call."""
    if not row.scopes:
        return row.admitted
    if caller.scopes is None:
        return 401
    if not set(row.scopes.split()) <= caller.scopes:
        return 403
    if caller.has_prefix and (row.concerns == "server" or (row.concerns in ("name", "body") and namespace != MINE)):
        return 403
    return row.admitted


async def call(site: Site, row: Row | Named, caller: Caller, namespace: str) -> Reply:
    method, target, body = target_of(row, namespace)
    return await site.call(method, target, body, headers=caller.headers)


def shows_other(reply: Reply) -> bool:
    """Whether an answer has a name or a payload of another tenant."""
    return b"other." in reply.raw or SECRET.encode() in reply.raw


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.operation} {row.query}")
async def test_every_key_is_admitted_or_refused_as_the_row_says(make_site: Callable[..., Site], row: Row) -> None:
    """A refused call changes nothing; an answer to a tenant's key has no name and no payload of the other tenant."""
    site = make_site()
    for namespace in (OTHER, MINE):
        for caller in sorted(CALLERS, key=lambda caller: expected(row, caller, namespace), reverse=True):
            before, status = site.state(), expected(row, caller, namespace)
            reply = await call(site, row, caller, namespace)
            assert reply.status == status, f"{row.operation} by {key_text(caller)} on {namespace}: {reply.raw[:300]!r}"
            if row.scopes and status in REFUSED:
                assert reply.code == REFUSED[status]
                assert site.state() == before
            if caller.has_prefix or caller.scopes is None:
                assert not shows_other(reply), f"{row.operation} by {key_text(caller)} shows {reply.raw[:2_000]!r}"


@pytest.mark.parametrize("row", [row for row in ROWS if row.concerns == "name"], ids=lambda row: row.operation)
async def test_a_refusal_does_not_show_whether_the_name_exists(make_site: Callable[..., Site], row: Row) -> None:
    site = make_site()
    there, absent = [await call(site, row, TENANT, namespace) for namespace in (OTHER, ABSENT)]
    assert (there.status, there["error"]) == (absent.status, absent["error"])


@pytest.mark.parametrize("row", BODIES, ids=lambda row: f"{row.operation} {row.field}")
async def test_a_name_in_a_body_is_held_to_the_prefix(make_site: Callable[..., Site], row: Named) -> None:
    """Another tenant's topic cannot be reached by naming it elsewhere, whatever other names stand beside it."""
    site = make_site()
    method, target, _ = target_of(row, MINE)
    scopes = frozenset(next(known.scopes for known in ROWS if known.operation == row.operation).split())
    for caller in [*TENANTS, *PLAIN]:
        if not scopes <= (caller.scopes or set()):
            continue
        for namespace in (OTHER, MINE) if caller.has_prefix else (OTHER,):
            before, reached = site.state(), not caller.has_prefix or namespace == MINE
            body = row.body.replace("NS", namespace).encode()
            reply = await site.call(method, target, body, headers=caller.headers)
            status = row.admitted if reached else 403
            assert reply.status in (status, 201) if reached else reply.status == 403, (caller, namespace, reply.raw)
            assert reached or (reply.code == "forbidden" and site.state() == before and not shows_other(reply))


CROSSED: Final = (
    # What a key that reaches both tenants made across them: the operation, and what a tenant's key is answered.
    ("GET /v0/routers/mine.cross", 403),
    ("DELETE /v0/routers/mine.cross", 403),
    ("GET /v0/topics/mine.crossed", 200),
    ("GET /v0/topics/mine.crossed/strip", 200),
    ("PUT /v0/topics/mine.crossed", 200),
    ("DELETE /v0/topics/mine.crossed", 403),
)


@pytest.mark.parametrize(("operation", "status"), CROSSED)
async def test_what_leads_to_another_tenant_is_hidden(
    make_site: Callable[..., Site], operation: str, status: int
) -> None:
    site = make_site()
    method, _, target = operation.partition(" ")
    reply = await site.call(method, target, {} if method == "PUT" else None, headers=TENANT.headers)
    assert reply.status == status, reply.raw
    assert not shows_other(reply)
