"""schemathesis against a real server, by the server's own document, with every check on.

Event streams are left out: they do not end. `REFUSALS` is the written list of refusals of requests that the document
allows, each because it depends on what is stored or relates two fields, which a schema does not say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from tenure.http.api.openapi import document
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tests.kit.restartable_server import PATIENCE_S, Serve, Serving

_GLOB = r"a Glob must end in its one \*"
REFUSALS: dict[str, str] = {
    r"GET /v0/(topics|routers)|GET /v0/topics/{topic}/(jobs|leases)": "this cursor was not given out by a listing",
    r"POST /v0/topics/{topic}": (
        "delay_ms, deliver_at and unique_key belong to queues|a record with a unique_key must be appended alone|"
        "client_id and client_seq go together|retry_backoff.max_ms must be at least min_ms|"
        "dead_letter must be another topic"
    ),
    r"POST /v0/topics/{topic}/(ack|nack|extend)": (
        "name the jobs: give seqs|lease_ids has|lease_ids go with seqs|lease_ms is required"
    ),
    r"POST /v0/topics/{topic}/delete": f"say what to delete|{_GLOB}",
    r"POST /v0/topics/{topic}/redrive": f"a topic cannot be redriven into itself|{_GLOB}",
    r"(PUT|PATCH) /v0/topics/{topic}": "retry_backoff.max_ms must be at least min_ms|dead_letter must be another topic",
    r"PUT /v0/routers/{r}": f"a router needs two different topics|{_GLOB}",
    r".*": "bytes of UTF-8|half of a surrogate pair",
}
OK_STATUSES = {412, 422}  # a strict ack of what is not held; a full topic

Case = schemathesis.Case[Any]
TOPICS = ["logs", "jobs", "letters"]


def _document() -> dict[str, Any]:
    routes = Service(ServerSettings(test_clock=True), environment={}).app.routes
    found: dict[str, Any] = json.loads(msgspec.json.encode(document(routes)))
    return found


schema = schemathesis.openapi.from_dict(_document()).exclude(path_regex=r"/(work|events)$|/watch/\{wid\}")


def _as_sent(value: Any) -> Any:
    """To JSON Schema 3.0 is an integer, to a u64 it is not: whole numbers are sent as such. Nobody waits long."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        fields = {name: _as_sent(item) for name, item in value.items()}
        if isinstance(fields.get("wait_ms"), int) and 20 < fields["wait_ms"] < 2**64:
            fields["wait_ms"] = 20
        return fields
    if isinstance(value, list):
        return [_as_sent(item) for item in value]
    return value


def prepare(case: Case) -> None:
    """Half of the names are those of topics that are there, so that more than 404 is met."""
    if isinstance(case.body, dict | list):
        case.body = _as_sent(case.body)
    name = case.path_parameters.get("topic")
    if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}", name):
        choice = len(name) % (2 * len(TOPICS))
        if choice < len(TOPICS):
            case.path_parameters["topic"] = TOPICS[choice]


@pytest.fixture(scope="module")
def server(serve_all: Serve) -> Serving:
    server = serve_all(test_clock=True)
    server.ok("PUT", "/v0/topics/logs", {"cap_records": 1_000})
    server.ok("PUT", "/v0/topics/jobs", {"type": "queue", "max_deliveries": 2, "dead_letter": "letters"})
    server.ok("PUT", "/v0/topics/letters", {"type": "queue"})
    for topic in TOPICS:
        server.ok("POST", f"/v0/topics/{topic}", {"records": [{"data": 1, "tag": "t"}] * 20})
    return server


@pytest.fixture(scope="module")
def session(server: Serving) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


def is_listed(case: Case, response: schemathesis.Response) -> bool:
    """Whether this refusal is one that the document cannot tell of."""
    if response.status_code in OK_STATUSES:
        return True
    if response.status_code != 400:
        return False
    message = response.json()["error"]["message"]
    label = case.operation.label
    return any(re.fullmatch(where, label) and re.search(what, message) for where, what in REFUSALS.items())


def check(case: Case, server: Serving, session: requests.Session) -> None:
    prepare(case)
    response = case.call(base_url=server.address, session=session, timeout=PATIENCE_S)
    excluded: list[schemathesis.CheckFunction] = [positive_data_acceptance] if is_listed(case, response) else []
    if response.status_code == 413:  # a refusal by size comes before anybody looks at the fields
        excluded += [positive_data_acceptance, negative_data_rejection]
    case.validate_response(response, excluded_checks=excluded, transport_kwargs={"session": session})


_QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]


@schema.parametrize()
@settings(max_examples=20, derandomize=True, deadline=None, suppress_health_check=_QUIET)
def test_every_route_keeps_to_the_document(case: Case, server: Serving, session: requests.Session) -> None:
    check(case, server, session)


@pytest.mark.full
@pytest.mark.timeout(3600)
@schema.parametrize()
@settings(max_examples=500, deadline=None, suppress_health_check=_QUIET)
def test_every_route_keeps_to_the_document_for_long(case: Case, server: Serving, session: requests.Session) -> None:
    check(case, server, session)


def test_the_server_serves_this_document(server: Serving) -> None:
    assert server.ok("GET", "/openapi.json") == _document()
