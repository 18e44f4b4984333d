"""A call as a plan: a generator that yields steps and returns its result, and itself never waits.

The rules of a call (what to send, what to repeat, what an answer means) are written once. A driver carries the steps
out, blocking or on an event loop, and sends each outcome back in: a Response for `Send`, an open stream for `Open`,
its bytes for `Read`, a lane for `Take`. A step that fails is thrown into the plan as a WireError.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import msgspec

from tenure.client.plan.producer_ids import Lanes
from tenure.client.transport.wire import Request

__all__ = ["Open", "Plan", "Read", "Send", "Sleep", "Step", "Take"]

T = TypeVar("T")


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a request and give back its Response."""

    request: Request


class Open(msgspec.Struct, frozen=True, gc=False):
    """Open a stream and give it back; its ``response`` has the status."""

    request: Request


class Read(msgspec.Struct, frozen=True, gc=False):
    """Give back the next bytes of an open stream; none where it has ended."""

    stream: Any


class Take(msgspec.Struct, frozen=True, gc=False):
    """Wait for a free lane and give it back; whoever got it returns it to the lanes itself."""

    lanes: Lanes
    wait_ms: int


class Sleep(msgspec.Struct, frozen=True, gc=False):
    """Wait before going on."""

    seconds: float


Step = Send | Open | Read | Take | Sleep
Plan = Generator[Step, Any, T]
