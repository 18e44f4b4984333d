"""Handlers of routes that are one command: decode or build it, run it, and render its reply after the write is durable.

A row of a route table names the command and the renderer of its reply. A function builds the command where it is more
than the body; a claim, which may wait, has a handler of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import force_setattr

from tenure.contract.commands import Command
from tenure.contract.names import check_topic_name
from tenure.http.api.app import Call, Handler
from tenure.http.api.body import Reader
from tenure.http.api.context import Context
from tenure.http.wire.message import Later, Render

__all__ = ["Build", "built", "command", "decoder"]

R = TypeVar("R")
C = TypeVar("C", bound=Command[Any])
Build = Callable[[Context, Call], Command[R]]
"""Make the command of a call. Raises what refuses the call."""


def command(schema: type[Command[R]], render: Render[R], *, optional: bool = False) -> Handler:
    """Return the handler of a command that is the body of its request, on the topic that the path names.

    ``optional`` lets an empty body stand for ``{}``.
    """
    return built(decoder(schema, optional=optional), render)


def built(build: Build[R], render: Render[R]) -> Handler:
    """Return the handler of a command that ``build`` makes."""

    def handle(context: Context, call: Call) -> Later[R]:
        return Later(context.broker.run(build(context, call)), render)

    return handle


def decoder(schema: type[C], *, optional: bool = False) -> Callable[[Context, Call], C]:
    """Return a function that decodes the command in a request's body and sets its topic, which the path names."""
    read = Reader(schema, optional=optional).read

    def decode(_: Context, call: Call) -> C:
        topic = check_topic_name(call.names["topic"])
        decoded = read(call.request)
        force_setattr(decoded, "topic", topic)
        return decoded

    return decode
