"""Routers: subscribers and publishers that a broker includes, under a prefix."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from fast_depends.dependencies import Dependant
from faststream._internal.basic_types import SendableMessage
from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.configs import BrokerConfig
from faststream._internal.types import BrokerMiddleware, CustomCallable

from tenure.faststream.message import TimerMessage
from tenure.faststream.registrator import TimersRegistrator

__all__ = ["TimersRoute", "TimersRoutePublisher", "TimersRouter"]


class TimersRoutePublisher(ArgsContainer):
    """The arguments of a ``publisher``, for a route."""

    def __init__(self, topic: str, **options: Any) -> None:
        super().__init__(topic=topic, **options)


class TimersRoute(SubscriberRoute):
    """A handler and the arguments of its ``subscriber``."""

    def __init__(
        self,
        call: Callable[..., SendableMessage] | Callable[..., Awaitable[SendableMessage]],
        topic: str,
        *,
        publishers: Iterable[TimersRoutePublisher] = (),
        **options: Any,
    ) -> None:
        super().__init__(call=call, topic=topic, publishers=publishers, **options)


class TimersRouter(TimersRegistrator, BrokerRouter[TimerMessage, Any]):
    """Include it with ``broker.include_router``; ``prefix`` goes in front of every topic.

    >>> from tenure.faststream import TimersBroker, TimersRouter
    >>> router = TimersRouter(prefix="billing-")
    >>> @router.subscriber("invoices")
    ... async def handle(invoice_id: str) -> None: ...
    >>> broker = TimersBroker("redis://127.0.0.1:6379/0")
    >>> broker.include_router(router)
    >>> [subscriber.full_topic for subscriber in broker.subscribers]
    ['billing-invoices']
    """

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[TimersRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[TimerMessage]] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        include_in_schema: bool | None = None,
        routers: Sequence[TimersRegistrator] = (),
    ) -> None:
        config = BrokerConfig(
            broker_middlewares=middlewares,
            broker_dependencies=dependencies,
            broker_parser=parser,
            broker_decoder=decoder,
            include_in_schema=include_in_schema,
            prefix=prefix,
        )
        super().__init__(config=config, handlers=handlers, routers=routers)
