"""Errors that no Tenure server wrote: they are named as such, and say nothing about topics and jobs."""

from __future__ import annotations

import pytest

from tenure import Closed, Denied, Invalid, NotFound, Overloaded, TenureError
from tenure.client import Response
from tenure.client.plan.answers import error_of

PAGE = {"content-type": "text/html"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_says_its_status_and_where_it_leads(status: int) -> None:
    error = error_of(Response(status, b"<html>", PAGE | {"location": "https://tenure.example/v0/topics"}))
    assert (type(error), error.code) == (TenureError, "redirected")
    assert error.detail == {"status": status, "location": "https://tenure.example/v0/topics"}
    assert f"{status} is a redirect to https://tenure.example/v0/topics, which no client follows" in error.message


def test_a_redirect_that_leads_nowhere_is_one_too() -> None:
    error = error_of(Response(302, b""))
    assert (error.code, error.detail) == ("redirected", {"status": 302})


@pytest.mark.parametrize("status", [404, 405, 409, 410, 412, 422, 500, 501])
@pytest.mark.parametrize("body", [b"<html>", b"", b'{"detail":"Not Found"}', b'{"error":"no"}', b'{"error":{}}'])
def test_the_answer_of_a_stranger_is_no_statement_about_topics_and_jobs(status: int, body: bytes) -> None:
    """A worker that is told 404 by a proxy would take its queue for gone, and its jobs for lost."""
    error = error_of(Response(status, body, PAGE))
    assert (type(error), error.code, error.detail) == (TenureError, "not_tenure", {"status": status})
    assert f"{status} with text/html" in error.message


@pytest.mark.parametrize(
    ("status", "kind"), [(400, Invalid), (401, Denied), (403, Denied), (413, Invalid), (421, Closed), (429, Overloaded)]
)
def test_what_the_caller_does_next_is_the_same_whoever_refused(status: int, kind: type[TenureError]) -> None:
    error = error_of(Response(status, b"<html>"))
    assert isinstance(error, kind)
    assert error.code == "not_tenure"


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_gateway_says_that_its_server_is_away(status: int) -> None:
    error = error_of(Response(status, b"<html>", PAGE))
    assert (type(error), error.code) == (Overloaded, "unreachable")


def test_what_a_stranger_writes_cannot_steer_a_terminal_and_has_an_end() -> None:
    error = error_of(Response(302, b"", {"location": "\x9b2J\u00e9" + "x" * 10_000}))
    assert error.message.isascii()
    assert error.message.isprintable()
    assert len(error.message) < 500


def test_an_error_of_a_tenure_server_is_what_it_says() -> None:
    error = error_of(Response(404, b'{"error":{"code":"topic_not_found","message":"there is no topic t"}}'))
    assert (type(error), error.code, error.message) == (NotFound, "topic_not_found", "there is no topic t")
    error = error_of(Response(404, b'{"error":{"code":"topic_not_found"}}'))
    assert (type(error), error.message) == (NotFound, "the server answered 404 topic_not_found, and no more")
