"""Handlers of routes that are one command: decode or build it, run it, and render its reply after the write is durable.

A row of a route table names the command and the renderer of its reply. A function builds the command where it is more
than the body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import force_setattr

from tenure.broker.broker import Broker
from tenure.contract.bounds import Bounds
from tenure.contract.commands import Command
from tenure.contract.names import check_topic_name
from tenure.http.api.app import Call, Handler
from tenure.http.api.body import Reader
from tenure.http.api.context import Context
from tenure.http.api.shares import Shares
from tenure.http.wire.message import Later, Render

__all__ = ["BoundsOf", "Build", "built", "command", "decoder", "reaching", "sharing"]

R = TypeVar("R")
C = TypeVar("C", bound=Command[Any])
Build = Callable[[Context, Call], Command[R]]
"""Make the command of a call. Raises what refuses the call."""
BoundsOf = Callable[[Call, Shares | None, Broker], Bounds | None]
"""Return the bounds of a caller, or None where there are none."""


def command(
    schema: type[Command[R]], render: Render[R], *, optional: bool = False, ends_with_peer: bool = False
) -> Handler:
    """Return the handler of a command that is the body of its request, on the topic that the path names.

    ``optional`` lets an empty body stand for ``{}``.
    """
    return built(decoder(schema, optional=optional), render, ends_with_peer=ends_with_peer)


def built(
    build: Build[R], render: Render[R], *, bounds: BoundsOf | None = None, ends_with_peer: bool = False
) -> Handler:
    """Return the handler of a command that ``build`` makes, for a caller within ``bounds``.

    With ``ends_with_peer`` it may wait, and only for as long as its caller does.
    """

    def handle(context: Context, call: Call) -> Later[R]:
        asked, broker = build(context, call), context.broker
        within = None if bounds is None else bounds(call, context.shares, broker)
        return Later(broker.run(asked, within), render, ends_with_peer)

    return handle


def reaching(call: Call, shares: Shares | None, broker: Broker) -> Bounds | None:
    """Return the bounds of a caller whose key does not reach every name."""
    return None if call.key is None else Bounds(reaches=call.key.allows)


def sharing(call: Call, shares: Shares | None, broker: Broker) -> Bounds | None:
    """Return the bounds of a caller that has a share of what all use up."""
    share = shares.of(call.key, broker) if call.key is not None and shares is not None else None
    return None if share is None else Bounds(share=share)


def decoder(schema: type[C], *, optional: bool = False) -> Callable[[Context, Call], C]:
    """Return a function that decodes the command in a request's body and sets its topic, which the path names."""
    read = Reader(schema, optional=optional).read

    def decode(_: Context, call: Call) -> C:
        topic = check_topic_name(call.names["topic"])
        decoded = read(call.request)
        force_setattr(decoded, "topic", topic)
        return decoded

    return decode
