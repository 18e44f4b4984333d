"""``/openapi.json``: the contract as OpenAPI 3.1, made from the route table and the schemas that validate.

Nothing is written twice: a route without a place in the document cannot exist, because the document is the table. What
the table does not know — query parameters and the shape of some answers — is listed here, by route.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tenure import __version__
from tenure.http.api.app import Route

__all__ = ["document", "path_of"]

_REF: Final = "#/components/schemas/{name}"
_NAME: Final = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"}
_PATH_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "seq": {"type": "integer", "minimum": 1, "maximum": 2**64 - 1},
    "wid": {"type": "string", "pattern": "^wid_[A-Za-z0-9_-]{22,}$"},
    "r": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}$"},
}
_TEXT: Final = {"type": "string"}
_HEADER: Final = {"type": "string", "pattern": "^[!-~]{1,256}$"}
_FLAG: Final = {"type": "boolean"}
_WHOLE: Final = {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}
_NODE: Final = {"type": "string", "minLength": 1, "maxLength": 128}
_STATES: Final = {"type": "string", "enum": ["ready", "in_flight", "delayed", "parked"]}
_PAGE: Final = {"page_size": _WHOLE, "cursor": _TEXT}
_QUERIES: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("GET", "/v0/topics"): {"prefix": _TEXT, "contains": _TEXT, "meters": _FLAG, **_PAGE},
    ("GET", "/v0/topics/*"): {"touch": _FLAG},
    ("DELETE", "/v0/topics/*"): {"if_empty": _FLAG},
    ("POST", "/v0/topics/*"): {"return_seqs": _FLAG},
    ("GET", "/v0/topics/*/work"): {"node": _NODE, "max": _WHOLE, "lease_ms": _WHOLE},
    ("DELETE", "/v0/topics/*/work"): {"node": _NODE},
    ("GET", "/v0/topics/*/jobs"): {"state": _STATES, "limit": _WHOLE, "cursor": _TEXT},
    ("GET", "/v0/topics/*/strip"): {"head": _WHOLE, "tail": _WHOLE, "leases": _WHOLE},
    ("GET", "/v0/topics/*/leases"): {"limit": _WHOLE, "cursor": _TEXT},
    ("GET", "/v0/routers"): {"prefix": _TEXT, "source": _TEXT, "dest": _TEXT, **_PAGE},
    ("POST", "/v0/watch"): {"lenient": _FLAG},
}
_REQUIRED: Final = {("GET", "/v0/topics/*/work", "node"), ("DELETE", "/v0/topics/*/work", "node")}
_LEADER_ONLY: Final = {"/v0/leader"}
"""Open routes that only a leader answers with a success."""
_APPEND: Final = ("POST", "/v0/topics/*")
_MATCH: Final = {
    "type": "array",
    "prefixItems": [{"const": "tag"}, {"enum": ["Eq", "Glob"]}, {"type": "string"}],
    "minItems": 3,
    "maxItems": 3,
}
_TOPIC_FIELDS: Final = ("source", "dest", "to", "dead_letter")
_CODES: Final[dict[int, tuple[str, str]]] = {
    400: ("Invalid", "The request is malformed or out of bounds: fix it."),
    401: ("Unauthorized", "There is no key, or an unknown one."),
    403: ("Forbidden", "The key lacks a scope or does not reach the name; or a foreign page sent this."),
    404: ("NotFound", "What the request names is not there."),
    405: ("MethodNotAllowed", "The path exists, the method does not: see Allow."),
    406: ("NotAcceptable", "This is an event stream: accept text/event-stream."),
    409: ("Conflict", "The request contradicts what is stored: read, then decide."),
    412: ("PreconditionFailed", "A seq is not the caller's, and strict was asked for."),
    413: ("TooLarge", "The body is larger than the limit."),
    415: ("UnsupportedMediaType", "Send application/json."),
    421: ("NotLeader", "Another server leads the log, and nothing happened: send this to detail.leader."),
    422: ("TopicFull", "The topic is full and rejects."),
    429: ("Throttled", "A cap was met: send the same request later."),
    500: ("Internal", "A fault of the server."),
    503: ("Unavailable", "Not ready, shutting down or read only: send the same request later."),
}
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "minLength": 1},
                "message": {"type": "string", "minLength": 1},
                "detail": {"type": "object"},
            },
        },
        "performance": {"$ref": _REF.format(name="Performance")},
    },
}
_PERFORMANCE: Final = {
    "type": "object",
    "required": ["server_total_ms"],
    "properties": {
        "server_total_ms": {"type": "number", "minimum": 0},
        "fsync_ms": {"type": "number", "minimum": 0},
        "throttle_wait_ms": {"type": "number", "minimum": 0},
    },
}
_REPLY: Final = {
    "type": "object",
    "required": ["performance"],
    "properties": {"performance": {"$ref": _REF.format(name="Performance")}},
}


def path_of(pattern: str) -> str:
    """Return a route's pattern in the syntax of OpenAPI."""
    return re.sub(r":(\w+)", r"{\1}", pattern)


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the whole document for a table of routes."""
    table = list(routes)
    bodies = list({route.body: None for route in table if route.body is not None})
    _, components = msgspec.json.schema_components(bodies, ref_template=_REF)
    for component in components.values():
        component.get("properties", {}).pop("$topic", None)  # the path names it
        _tighten(component.get("properties", {}))
    schemas = components | {"Error": _ERROR, "Performance": _PERFORMANCE, "Reply": _REPLY}
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(path_of(route.pattern), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tenure",
            "version": __version__,
            "description": "A durable work queue: work is handed out on leases, and the log is the truth.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in sorted({_tag(route) for route in table})],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": {name: _error_response(status, about) for status, (name, about) in _CODES.items()},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key, where the server has keys."},
                "token": {"type": "apiKey", "in": "query", "name": "token", "description": "On event streams only."},
            },
        },
    }


def _tighten(fields: dict[str, Any]) -> None:
    """Add to our fields what their types cannot express: which names are topics, how a match is written."""
    for name, schema in fields.items():
        for variant in schema.get("anyOf", [schema]):
            if name in _TOPIC_FIELDS and variant.get("type") == "string":
                variant["pattern"] = _NAME["pattern"]
            elif name in ("match", "filter") and variant.get("type") == "array":
                variant.clear()
                variant.update(_MATCH)
            elif name == "topics" and variant.get("type") == "object":
                variant |= {"propertyNames": _NAME, "minProperties": 1}


def _operation(route: Route) -> dict[str, Any]:
    names = re.findall(r":(\w+)", route.pattern)
    words = [word for word in re.split(r"[^A-Za-z0-9]+", route.pattern) if word and word != "v0"]
    operation: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *words]),
        "summary": route.summary or f"{route.method} {path_of(route.pattern)}",
        "tags": [_tag(route)],
        "parameters": [*map(_path_parameter, names), *_other_parameters(route)],
        "responses": {**_successes(route), **_errors(route)},
        "security": _security(route),
    }
    if route.scopes:
        operation["description"] = f"Needs the scope {' and '.join(sorted(route.scopes))}."
    if route.body is not None:
        schema = {"$ref": _REF.format(name=route.body.__name__)}
        required = any(field.required for field in msgspec.structs.fields(route.body))
        operation["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    return operation


def _tag(route: Route) -> str:
    parts = [part for part in route.pattern.split("/") if part and part != "v0"]
    return parts[0] if len(parts) > 1 or (parts and parts[0] in ("topics", "routers", "watch")) else "server"


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS.get(name, _NAME)}


def _other_parameters(route: Route) -> list[dict[str, Any]]:
    pattern = re.sub(r":\w+", "*", route.pattern)
    found = [
        {"name": name, "in": "query", "required": (route.method, pattern, name) in _REQUIRED, "schema": schema}
        for name, schema in _QUERIES.get((route.method, pattern), {}).items()
    ]
    headers = ["Idempotency-Key"] if (route.method, pattern) == _APPEND else ["Last-Event-ID"] if route.sse else []
    return found + [{"name": name, "in": "header", "required": False, "schema": _HEADER} for name in headers]


def _security(route: Route) -> list[dict[str, list[str]]]:
    """Return the keys that a route takes; the empty entry is there because a server without keys asks for none."""
    if not route.scopes:
        return []
    scopes = sorted(route.scopes)
    return [{"key": scopes}, *([{"token": scopes}] if route.sse else []), {}]


def _successes(route: Route) -> dict[str, Any]:
    if route.sse:
        content: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
    elif route.pattern == "/" or route.pattern.startswith("/console/"):
        kinds = ("text/html",) if route.pattern == "/" else ("text/javascript", "text/css", "image/svg+xml")
        content = {kind: {"schema": {"type": "string"}} for kind in kinds}
    elif route.pattern == "/openapi.json":
        content = {"application/json": {"schema": {"type": "object"}}}
    else:
        content = {"application/json": {"schema": {"$ref": _REF.format(name="Reply")}}}
    if route.pattern == "/v0/metrics":
        content["text/plain"] = {"schema": {"type": "string"}}
    success = {"description": "Done.", "content": content}
    creates = route.method == "PUT" or (route.method == "POST" and re.fullmatch(r"/v0/topics/:\w+", route.pattern))
    return {"200": success, **({"201": {**success, "description": "Done, and created."}} if creates else {})}


def _errors(route: Route) -> dict[str, Any]:
    statuses = {400, 403, 429, 500, 503}
    if route.scopes:
        statuses |= {401}
    if ":" in route.pattern or route.body is not None:
        statuses |= {404, 409}
    if route.body is not None or route.method in ("PATCH", "POST", "PUT"):
        statuses |= {412, 413, 415, 422}
    if route.sse:
        statuses |= {406}
    if route.pattern in _LEADER_ONLY or (route.scopes and not route.anywhere):
        statuses |= {421}
    return {str(status): {"$ref": f"#/components/responses/{_CODES[status][0]}"} for status in sorted(statuses)}


def _error_response(status: int, about: str) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": about,
        "content": {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}},
    }
    if status in (429, 503):
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return response
