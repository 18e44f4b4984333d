"""Running an admitted request to its response, for all three kinds of results. Shared by both protocols."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from time import perf_counter
from types import coroutine
from typing import Any

from tenure.errors import Closed, Indeterminate, TenureError
from tenure.http.wire.bodies import Charge
from tenure.http.wire.errors import error_response
from tenure.http.wire.fair_turns import Caller
from tenure.http.wire.message import Admission, Body, Later, Request, Response, Send, Stream

__all__ = ["Exchange", "Pending", "Work", "carry_out", "fault_response", "run_stream"]

log = logging.getLogger("tenure.http")

Done = Callable[[Response], None]


class Pending:
    """A response that is not there yet; given to ``done`` once it is.

    ``cancel`` answers now, because the server stops; ``lose`` ends it, because its peer is gone.
    """

    __slots__ = ("_admission", "_done", "_later", "_release", "_started_s")

    def __init__(self, later: Later[Any], admission: Admission, done: Done) -> None:
        self._later = later
        self._admission = admission
        self._done: Done | None = done
        self._release = admission.hold(later)
        self._started_s = perf_counter()
        later.answer.when_done(self.reached)

    @property
    def ends_with_peer(self) -> bool:
        """Whether it waits for its peer alone: a write goes on without one."""
        return self._later.ends_with_peer

    def reached(self, error: TenureError | None) -> None:
        """Respond: the answer is done, or never will be, by this error. Only the first call counts."""
        caller = self._admission.request.caller
        if caller is not None and error is None and self._later.ends_with_peer and not caller.is_free:
            caller.wait(partial(self._respond, None))  # one event may end the wait of many
        else:
            self._respond(error)

    def _respond(self, error: TenureError | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            if self._release is not None:
                self._release()
            later, admission = self._later, self._admission
            caller, began_s = admission.request.caller, perf_counter()
            if error is None:
                done(_render(later, admission, later.fsync_ms(began_s - self._started_s)))
            else:
                done(admission.observed(error_response(error, admission.request)))
            if caller is not None:
                caller.spend(began_s)

    def cancel(self) -> None:
        """Respond now: the server stops."""
        if self.ends_with_peer:
            self._respond(Closed("the server stops: connect again", code="shutting_down"))
            self._later.answer.cancel()
        else:
            self._respond(Indeterminate("the server stops: the write may or may not have become durable"))

    def lose(self) -> None:
        """End the wait, because the peer is gone; what its reply holds is taken back. A write goes on."""
        done, self._done = self._done, None
        if done is not None and self._release is not None:
            self._release()
        if self.ends_with_peer:
            self._later.answer.cancel()


class Work:
    """A response that a task makes: a handler that is a coroutine, or a stream. It may come to an answer, ``after``."""

    __slots__ = ("after", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.after: Pending | None = None

    @property
    def ends_with_peer(self) -> bool:
        """Whether it ends with its peer: what has come to an answer does not."""
        return self.after is None

    def cancel(self) -> None:
        """End it, because the server stops."""
        if self.after is not None:
            self.after.cancel()
        else:
            self.task.cancel()

    def lose(self) -> None:
        """End it, because the peer is gone."""
        if self.after is not None:
            self.after.lose()
        elif self.task is not asyncio.current_task():
            self.task.cancel()


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
        self.pending: Pending | Work | None = None

    def release(self) -> None:
        """Take the body off its account: it is answered, or its peer is gone."""
        if self.charge is not None:
            self.charge.release()


def carry_out(admission: Admission, body: Body, done: Done) -> Response | Pending | Work:
    """Answer a request: at once, or later through ``done``, which is called once and never from within this call.

    What waits for an answer of the broker costs a callback; only a coroutine gets a task. Nothing is raised.
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
    return _begin(result, admission, done)


def _await_answer(later: Later[Any], admission: Admission, done: Done) -> Response | Pending:
    try:
        if later.answer.is_done():
            return _render(later, admission, 0.0)
    except TenureError as error:
        return admission.observed(error_response(error, admission.request))
    return Pending(later, admission, done)


def _render(later: Later[Any], admission: Admission, fsync_ms: float) -> Response:
    try:
        response = later.render(admission, later.answer.reply, fsync_ms)
    except TenureError as error:
        response = error_response(error, admission.request)
    except Exception:
        response = fault_response(admission.request)
    return admission.observed(response)


def _begin(work: Coroutine[Any, Any, Response | Later[Any]], admission: Admission, done: Done) -> Work:
    """Run a coroutine in a task, whose steps are charged to the caller; what it comes to is the response."""
    caller, release = admission.request.caller, admission.hold(None)
    running = Work(asyncio.get_running_loop().create_task(work if caller is None else _charged(work, caller)))

    def finished(task: asyncio.Task[Response | Later[Any]]) -> None:
        began_s = perf_counter()
        work.close()  # it may never have begun
        if release is not None:
            release()
        outcome = _outcome(task, admission, done)
        if isinstance(outcome, Pending):
            running.after = outcome
        else:
            done(outcome)
        if caller is not None:
            caller.spend(began_s)

    running.task.add_done_callback(finished)
    return running


def _outcome(task: asyncio.Task[Response | Later[Any]], admission: Admission, done: Done) -> Response | Pending:
    """Return the response that a finished task has come to, or the wait for it."""
    request = admission.request
    if task.cancelled():
        response = error_response(Closed("the server stops: connect again", code="shutting_down"), request)
    elif (error := task.exception()) is None:
        result = task.result()
        if isinstance(result, Later):
            return _await_answer(result, admission, done)
        response = result
    else:
        response = error_response(error, request) if isinstance(error, TenureError) else fault_response(request, error)
    return admission.observed(response)


async def _charged(work: Coroutine[Any, Any, Response | Later[Any]], caller: Caller) -> Response | Later[Any]:
    """Run a coroutine; the time of each of its steps is charged to a caller."""
    return await _in_steps(work, caller)


@coroutine
def _in_steps(
    work: Coroutine[Any, Any, Response | Later[Any]], caller: Caller
) -> Generator[Any, Any, Response | Later[Any]]:
    given, error = None, None
    while True:
        began_s = perf_counter()
        try:
            wanted = work.send(given) if error is None else work.throw(error)
        except StopIteration as done:
            result: Response | Later[Any] = done.value
            return result
        finally:
            caller.spend(began_s)
        error = None
        try:
            given = yield wanted
        except GeneratorExit:
            work.close()
            raise
        except BaseException as thrown:
            error = thrown


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
