"""The document is the route table: every route is in it, every schema is sound, every reference leads somewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from tenure.http.api.app import Route
from tenure.http.api.openapi import document, path_of
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tests.cli.test_reference import code, rows

ROUTES = Service(ServerSettings(test_clock=True), environment={}).app.routes


@pytest.fixture(scope="module")
def page() -> Any:
    return json.loads(msgspec.json.encode(document(ROUTES)))


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def test_no_body_has_the_name_of_its_topic(page: Any) -> None:
    assert "$topic" not in json.dumps(page), "the path has it"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.pattern}")
def test_every_route_is_in_the_document(page: Any, route: Route):
    operation = page["paths"][path_of(route.pattern)][route.method.lower()]
    assert operation["summary"]
    assert bool(operation["security"]) == bool(route.scopes)
    assert ("requestBody" in operation) == (route.body is not None)
    named = [found["name"] for found in operation["parameters"] if found["in"] == "path"]
    assert named == re.findall(r":(\w+)", route.pattern)
    assert {"200", "400", "503"} <= set(operation["responses"])
    assert ("401" in operation["responses"]) == bool(route.scopes)


def test_nothing_else_is_in_the_document(page: Any):
    listed = {(method.upper(), path) for path, item in page["paths"].items() for method in item}
    assert listed == {(route.method, path_of(route.pattern)) for route in ROUTES}


def test_names_of_operations_are_unique(page: Any):
    found = [operation["operationId"] for item in page["paths"].values() for operation in item.values()]
    assert len(found) == len(set(found))


def test_every_reference_leads_somewhere(page: Any):
    for reference in references(page):
        part = page
        for word in reference.removeprefix("#/").split("/"):
            part = part[word]


def test_every_schema_is_a_json_schema(page: Any):
    for schema in page["components"]["schemas"].values():
        assert jsonschema_rs.meta.is_valid(schema)


def test_what_the_schema_of_a_claim_says_is_what_is_validated(page: Any):
    schema = {"$ref": "#/components/schemas/Claim", "components": page["components"]}
    validator = jsonschema_rs.Draft202012Validator(schema)
    assert validator.is_valid({"node": "w", "max": 1})
    wrongs: list[Any] = [{}, {"node": 1}, {"node": "w", "max": -1}, {"node": "w", "max": "1"}, []]
    for wrong in wrongs:
        assert not validator.is_valid(wrong)


def test_the_document_is_openapi_3_1_and_tells_how_to_authenticate(page: Any):
    assert page["openapi"].startswith("3.1.")
    assert page["components"]["securitySchemes"]["key"] | {"description": ""} == {
        "type": "http",
        "scheme": "bearer",
        "description": "",
    }
    streams = [
        path
        for path, item in page["paths"].items()
        if {"token": ["read"]} in item.get("get", {"security": []})["security"]
    ]
    assert "/v0/watch/{wid}" in streams


def test_the_page_about_the_api_lists_every_route_with_its_scopes():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "http-api.md").read_text()
    listed = {code(row[0])[0]: set(code(row[1])) for row in rows(page) if "/" in row[0]}
    assert listed == {f"{route.method} {route.pattern}": set(route.scopes) for route in ROUTES}
