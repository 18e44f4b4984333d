"""Running an admitted request to its response, for all three kinds of results. Shared by both protocols."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from tenure.errors import Closed, Indeterminate, TenureError
from tenure.http.api.app import error_response
from tenure.http.wire.bodies import Charge
from tenure.http.wire.message import Admission, Body, Later, Request, Response, Send, Stream

__all__ = ["Done", "Exchange", "Pending", "carry_out", "fault_response", "run_stream"]

log = logging.getLogger("tenure.http")

Done = Callable[[Response], None]
Pending = asyncio.Future[Any]
"""The future of a response. A Task is work that is cancelled when its peer goes; a plain future is durability: it is
not.
"""


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
    request = admission.request
    try:
        result = admission.answer(body)
    except Exception:
        return fault_response(request)
    if type(result) is Response:
        return result
    if isinstance(result, Later):
        return _await_answer(result, request, done)
    assert not isinstance(result, Response)
    task = asyncio.get_running_loop().create_task(result)
    task.add_done_callback(partial(_finished, request, done))
    return task


def _await_answer(later: Later[Any], request: Request, done: Done) -> Response | Pending:
    answer = later.answer
    durability = answer.durability
    try:
        if not answer.level or durability is None or durability.reached(answer.batch, answer.level):
            return _render(later, request)
        future = durability.wait(answer.batch, answer.level)
    except TenureError as error:
        return error_response(error, request)
    future.add_done_callback(partial(_settled, later, request, done))
    return future


def _settled(later: Later[Any], request: Request, done: Done, future: Pending) -> None:
    if future.cancelled():
        error: BaseException | None = Indeterminate("the server stops: the write may or may not have become durable")
    else:
        error = future.exception()
    if error is None:
        done(_render(later, request))
    elif isinstance(error, TenureError):
        done(error_response(error, request))
    else:
        done(fault_response(request, error))


def _finished(request: Request, done: Done, task: asyncio.Future[Response]) -> None:
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


def _render(later: Later[Any], request: Request) -> Response:
    try:
        return later.render(later.answer.reply)
    except TenureError as error:
        return error_response(error, request)
    except Exception:
        return fault_response(request)


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
