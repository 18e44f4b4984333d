"""Retry: which requests are repeated, when, and the error that is raised when the outcome stays unknown.

    never sent (no connection)          repeat any call
    never sent (this client is busy)    it waited for as long as it may: Overloaded
    429, 503 of a Tenure server         nothing changed: repeat after Retry-After
    503 `indeterminate`, lost answers,
    502 and 504 of a gateway            unknown: repeat where a second copy has the effect of one, else Indeterminate
    421 of a server that follows        nothing changed: repeat (the wire did so where the leader was named)
    500                                 unknown, and a bug: not repeated
    everything else                     the answer

A client of several servers seeks while none of them leads: an attempt that reached no server, or one that does not
lead, is opening or closing, or lost its store, changed nothing and is repeated at the next server after a short pause.
It is not counted, because a failover takes longer than all attempts in a row.

Once an attempt's outcome is unknown, only a success resolves it. A refusal of a later copy says nothing about the
first, so the error that ends the retries is then raised as Indeterminate. A read changes nothing and never raises it.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tenure.backoff import backoff_ms
from tenure.client.plan.answers import decode, error_of, is_from_server
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan, Send, Sleep
from tenure.client.transport.wire import Request, Response, WireError
from tenure.contract.repeat import Repeat
from tenure.errors import Closed, Corrupt, Indeterminate, NotLeader, Overloaded, TenureError
from tenure.retries import Retries

__all__ = ["Answered", "exchange", "reply_of", "require_success", "unsent_error"]

T = TypeVar("T")


class Answered(msgspec.Struct, frozen=True):
    """A success; or, in ``refusal``, the error that a copy met after one whose outcome is unknown.

    ``repeated`` says that an earlier copy may have arrived.
    """

    response: Response
    repeated: bool
    refusal: TenureError | None = None


class _Attempt(msgspec.Struct, frozen=True):
    """The outcome of one attempt: an answer that ends the call, or an error after which the request may be repeated.

    ``unknown`` says that the request may have been carried out; ``after_s`` is the server's Retry-After. ``elsewhere``
    says that another server may do better.
    """

    response: Response | None
    error: TenureError | None
    unknown: bool = False
    again: bool = False
    after_s: float | None = None
    elsewhere: bool = False


def exchange(session: Session, request: Request, repeat: Repeat) -> Plan[Answered]:
    """Send a request, with retries, until an answer ends the call. Raises a TenureError."""
    settings, now_s = session.settings, session.now_s
    retries = Retries(repeat, attempts_max=settings.attempts_max, retry_for_ms=settings.retry_for_ms, now_s=now_s)
    while True:
        try:
            response = yield Send(request)
        except WireError as error:
            attempt = _broken(error)
        else:
            attempt = _judge(response)
        if attempt.error is None:
            assert attempt.response is not None
            return Answered(attempt.response, retries.unknown)
        seeks = attempt.elsewhere and session.has_several()
        wait_s = _wait_s(session, attempt, retries.failures + 1, seeks=seeks)
        if not retries.may_repeat(again=attempt.again, unknown=attempt.unknown, wait_s=wait_s, counted=not seeks):
            if retries.unknown and attempt.response is not None and not attempt.unknown:
                return Answered(attempt.response, True, attempt.error)
            raise _unknown(attempt.error) if retries.unknown else attempt.error
        yield Sleep(wait_s)


def require_success(answered: Answered) -> Answered:
    """Return a success unchanged. Raises Indeterminate where a copy was refused after one whose outcome is unknown."""
    if answered.refusal is not None:
        raise _unknown(answered.refusal)
    return answered


def reply_of(decoder: msgspec.json.Decoder[T], answered: Answered, repeat: Repeat) -> T:
    """Decode the reply of a success. Raises as `require_success`, and where it cannot be decoded: TenureError
    (``bad_answer``) on a read, else Indeterminate, because the server may or may not have carried the request out.
    """
    response = require_success(answered).response
    try:
        return decode(decoder, response)
    except TenureError as error:
        raise error if repeat is Repeat.READ else _unknown(error) from error


def _wait_s(session: Session, attempt: _Attempt, count: int, *, seeks: bool) -> float:
    settings = session.settings
    if attempt.after_s is None or seeks:
        min_ms, max_ms = settings.backoff_min_ms, settings.seek_max_ms if seeks else settings.backoff_max_ms
        return backoff_ms(count, min_ms=min_ms, max_ms=max_ms, chance=session.chance) / 1000
    after_s = min(attempt.after_s, settings.retry_after_max_ms / 1000)
    return after_s * (1 + session.chance())


def unsent_error(error: WireError) -> TenureError:
    """Return the error that the caller gets where nothing was sent."""
    if error.closed:
        return Closed(error.message, code="client_closed")
    if error.busy:
        return Overloaded(error.message, code="busy")
    return Overloaded(f"the server cannot be reached: {error.message}", code="unreachable")


def _broken(error: WireError) -> _Attempt:
    """Return the outcome of an attempt that the network broke, or for which the client had no connection."""
    if error.sent:
        lost = Overloaded(f"no answer came: {error.message}", code="unreachable")
        return _Attempt(None, lost, unknown=True, again=True)
    return _Attempt(None, unsent_error(error), again=not error.is_own, elsewhere=not error.is_own)


def _judge(response: Response) -> _Attempt:
    """Return the outcome of an attempt that was answered."""
    status = response.status
    if status < 300:
        return _Attempt(response, None)
    error = error_of(response)
    if status in (502, 504) or (status == 503 and not is_from_server(response)):
        return _Attempt(response, error, unknown=True, again=True)
    if isinstance(error, Indeterminate):
        return _Attempt(response, error, unknown=True, again=True, after_s=_retry_after_s(response))
    if status >= 500 and status != 503:
        return _Attempt(response, error, unknown=True)
    if isinstance(error, NotLeader) and error.detail.get("leader"):
        error.message += (
            " If this client has not sent it there, add it to the client's URL: http://a:4000,http://b:4000"
        )
    again = status in (421, 429, 503) and not isinstance(error, Corrupt)
    elsewhere = isinstance(error, Closed) or error.code == "store_away"
    after_s = _retry_after_s(response) if again else None
    return _Attempt(response, error, again=again, after_s=after_s, elsewhere=elsewhere)


def _retry_after_s(response: Response) -> float | None:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _unknown(error: TenureError) -> Indeterminate:
    if isinstance(error, Indeterminate):
        return error
    message = f"the outcome is unknown, the request may or may not have been carried out: {error.message}"
    return Indeterminate(message, cause=error.code)
