"""A FastStream broker whose messages become due at a moment, on Redis or Valkey.

    from datetime import timedelta
    from faststream import FastStream
    from tenure.faststream import TimersBroker

    broker = TimersBroker("redis://127.0.0.1:6379/0")
    app = FastStream(broker)

    @broker.subscriber("invoices")
    async def handle(invoice_id: str) -> None: ...

    await broker.publish("INV-001", topic="invoices", activate_in=timedelta(days=30))

Needs the extra ``faststream``: ``pip install 'tenure[faststream]'``, in a clone ``pip install '.[faststream]'``.
"""

from __future__ import annotations

from tenure.faststream.broker import TimersBroker
from tenure.faststream.message import TimerMessage, TimerStreamMessage
from tenure.faststream.migration import Moved, move
from tenure.faststream.publisher import TimersPublisher
from tenure.faststream.router import TimersRoute, TimersRoutePublisher, TimersRouter
from tenure.faststream.subscriber import TimersSubscriber
from tenure.faststream.testing import ScheduledTimer, TestTimersBroker

__all__ = [
    "Moved",
    "ScheduledTimer",
    "TestTimersBroker",
    "TimerMessage",
    "TimerStreamMessage",
    "TimersBroker",
    "TimersPublisher",
    "TimersRoute",
    "TimersRoutePublisher",
    "TimersRouter",
    "TimersSubscriber",
    "move",
]
