"""Running an admitted request to its response, for all three kinds of results. Shared by both protocols."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from tenure.errors import Closed, Indeterminate, TenureError
from tenure.http.api.app import error_response
from tenure.http.wire.bodies import Charge
from tenure.http.wire.message import Admission, Body, Later, Request, Response, Send, Stream

__all__ = ["DurableAnswer", "Exchange", "Pending", "carry_out", "fault_response", "run_stream"]

log = logging.getLogger("tenure.http")

Done = Callable[[Response], None]


class DurableAnswer:
    """The response to a write, given to ``done`` when its batch is as durable as it asks for.

    It is no future: it costs no turn of the loop between the sync and the response. Cancelled, it answers that the
    outcome is unknown; the write goes on.
    """

    __slots__ = ("_admission", "_done", "_later", "_started_s")

    def __init__(self, later: Later[Any], admission: Admission, done: Done) -> None:
        self._later = later
        self._admission = admission
        self._done: Done | None = done
        self._started_s = perf_counter()

    def reached(self, error: TenureError | None) -> None:
        """Respond: the batch has reached its level, or never will, by this error. Only the first call counts."""
        done, self._done = self._done, None
        if done is not None:
            caller, began_s = self._admission.request.caller, perf_counter()
            if error is None:
                done(_render(self._later, self._admission, self._later.fsync_ms(began_s - self._started_s)))
            else:
                done(self._admission.observed(error_response(error, self._admission.request)))
            if caller is not None:
                caller.spend(began_s)

    def cancel(self) -> None:
        """Respond now: the server stops."""
        self.reached(Indeterminate("the server stops: the write may or may not have become durable"))


Pending = asyncio.Task[Any] | DurableAnswer
"""What a response waits for. A Task is work that is cancelled when its peer goes; durability is not."""


class Exchange:
    """One HTTP/1.1 request and its response.

    ``admission`` is None for one that was refused at its head: its ``response`` is there from the start. ``charge`` is
    what its body was charged; None where it has none.
    """

    __slots__ = ("admission", "body", "charge", "keep_alive", "old", "pending", "request", "response")

    def __init__(self, request: Request, *, keep_alive: bool, old: bool) -> None:
        self.request = request
        self.keep_alive = keep_alive
        self.old = old
        self.admission: Admission | None = None
        self.body: Body = b""
        self.charge: Charge | None = None
        self.response: Response | None = None
        self.pending: Pending | None = None

    @property
    def account(self) -> str:
        """The account that is charged for it: its key, or without a valid one the address."""
        return self.request.client if self.admission is None else self.admission.account

    def release(self) -> None:
        """Take the body off its account: it is answered, or its peer is gone."""
        if self.charge is not None:
            self.charge.release()


def carry_out(admission: Admission, body: Body, done: Done) -> Response | Pending:
    """Answer a request: at once, or later through ``done``, which is called once and never from within this call.

    A write that waits for durability costs a callback, not a task; only a coroutine gets a task. Nothing is raised.
    """
    try:
        result = admission.answer(body)
    except Exception:
        return fault_response(admission.request)
    if result.__class__ is Response:
        return result
    if isinstance(result, Later):
        return _await_answer(result, admission, done)
    assert not isinstance(result, Response)
    task = asyncio.get_running_loop().create_task(result)
    task.add_done_callback(partial(_finished, admission.request, done))
    return task


def _await_answer(later: Later[Any], admission: Admission, done: Done) -> Response | Pending:
    answer = later.answer
    durability = answer.durability
    try:
        if not answer.level or durability is None or durability.reached(answer.batch, answer.level):
            return _render(later, admission, 0.0)
    except TenureError as error:
        return admission.observed(error_response(error, admission.request))
    waiting = DurableAnswer(later, admission, done)
    durability.when_reached(answer.batch, answer.level, waiting.reached)
    return waiting


def _finished(request: Request, done: Done, task: asyncio.Future[Response]) -> None:
    caller, began_s = request.caller, perf_counter()
    _answer_with(task, request, done)
    if caller is not None:
        caller.spend(began_s)


def _answer_with(task: asyncio.Future[Response], request: Request, done: Done) -> None:
    if task.cancelled():
        done(error_response(Closed("the server stops: connect again", code="shutting_down"), request))
        return
    error = task.exception()
    if error is None:
        done(task.result())
    elif isinstance(error, TenureError):
        done(error_response(error, request))
    else:
        done(fault_response(request, error))


def _render(later: Later[Any], admission: Admission, fsync_ms: float) -> Response:
    try:
        response = later.render(admission, later.answer.reply, fsync_ms)
    except TenureError as error:
        response = error_response(error, admission.request)
    except Exception:
        response = fault_response(admission.request)
    return admission.observed(response)


async def run_stream(stream: Stream, send: Send) -> bool:
    """Run a stream; return True where it ended by itself, False where it was cancelled, cut or failed. Never raises."""
    try:
        await stream(send)
    except (asyncio.CancelledError, ConnectionError):
        return False
    except Exception:
        log.exception("a stream failed")
        return False
    return True


def fault_response(request: Request, error: BaseException | None = None) -> Response:
    """Log a bug of ours, and return a response that says so without details."""
    log.error(
        "a request could not be answered",
        exc_info=error if error is not None else True,
        extra={"method": request.method, "path_length": len(request.path)},
    )
    return error_response(TenureError("the server met a fault of its own: report it; the outcome is unknown"), request)
