"""`Plan`: a call as a generator that yields steps and returns its result; it never waits itself.

The rules of a call (what to send, what to repeat, what an answer means) are written once. A driver carries the steps
out, blocking or on an event loop, and sends each outcome back in: a Response for `Send`, an open stream for `Open`,
its bytes for `Read`, a lane for `Take`. A step that fails is thrown into the plan as a WireError.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import msgspec

from tenure.client.plan.producer_lanes import ProducerLanes
from tenure.client.transport.wire import Request

__all__ = ["Open", "Plan", "Read", "Send", "Sleep", "Step", "Take"]

T = TypeVar("T")


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a request; the outcome is its Response."""

    request: Request


class Open(msgspec.Struct, frozen=True, gc=False):
    """Open a stream; the outcome is the stream, whose ``response`` has the status."""

    request: Request


class Read(msgspec.Struct, frozen=True, gc=False):
    """Read from an open stream; the outcome is its next bytes, none where it has ended."""

    stream: Any


class Take(msgspec.Struct, frozen=True, gc=False):
    """Wait for a free lane; the outcome is the lane, which the plan gives back itself."""

    lanes: ProducerLanes
    wait_ms: int


class Sleep(msgspec.Struct, frozen=True, gc=False):
    """Wait before the next step."""

    seconds: float


Step = Send | Open | Read | Take | Sleep
Plan = Generator[Step, Any, T]
