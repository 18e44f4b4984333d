"""``subscriber`` and ``publisher``, for brokers and routers alike."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from fast_depends.dependencies import Dependant
from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.types import CustomCallable
from faststream.middlewares import AckPolicy

from tenure.faststream.config import (
    TimersBrokerConfig,
    TimersPublisherConfig,
    TimersPublisherSpecConfig,
    TimersSubscriberConfig,
    TimersSubscriberSpecConfig,
)
from tenure.faststream.message import TimerMessage
from tenure.faststream.publisher import TimersPublisher, TimersPublisherSpecification
from tenure.faststream.subscriber import TimersSubscriber, TimersSubscriberSpecification
from tenure.faststream.topic import check_topic
from tenure.worker import verdict
from tenure.worker.backoff import BackoffRule, Exponential
from tenure.worker.options import TaskKnobs, TaskOptions

__all__ = ["TimersRegistrator"]


class TimersRegistrator(Registrator[TimerMessage, TimersBrokerConfig]):
    """Where subscribers and publishers are declared."""

    def subscriber(  # type: ignore[override]
        self,
        topic: str,
        *,
        max_workers: int = 10,
        lease_ttl: float | timedelta = 30,
        retries: int = 3,
        backoff: BackoffRule | None = None,
        max_deliveries: int | None = None,
        ack_policy: AckPolicy = EMPTY,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        title_: str | None = None,
        description_: str | None = None,
        include_in_schema: bool = True,
    ) -> TimersSubscriber:
        """Handle the timers of ``topic``, at most ``max_workers`` at once.

        A lease runs ``lease_ttl`` (seconds) and is renewed while the handler runs: it is the time until a dead worker's
        timer comes back. A failure nacks with ``backoff``, the one after ``retries`` makes a dead letter; so does the
        end of ``max_deliveries`` deliveries (two above ``retries``, at least 5), whether by failures or crashes. Raises
        Invalid.
        """
        check_topic(topic)
        lease = lease_ttl if isinstance(lease_ttl, timedelta) else timedelta(seconds=lease_ttl)
        knobs: TaskKnobs = {
            "concurrency": max_workers,
            "lease": lease,
            "retries": retries,
            "backoff": backoff or Exponential(),
            "max_deliveries": max_deliveries,
            "policy": verdict.AckPolicy.MANUAL,
        }
        options = TaskOptions.of(topic, knobs, is_async=True)
        config: Any = self.config
        calls: CallsCollection[TimerMessage] = CallsCollection()
        spec = TimersSubscriberSpecConfig(
            topic=topic, title_=title_, description_=description_, include_in_schema=include_in_schema
        )
        subscriber = TimersSubscriber(
            TimersSubscriberConfig(_outer_config=config, topic=topic, options=options, _ack_policy=ack_policy),
            TimersSubscriberSpecification(_outer_config=config, specification_config=spec, calls=calls),
            calls,
        )
        super().subscriber(subscriber)
        return subscriber.add_call(
            parser_=parser or self._parser, decoder_=decoder or self._decoder, dependencies_=dependencies
        )

    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        schema_: Any | None = None,
        title_: str | None = None,
        description_: str | None = None,
        include_in_schema: bool = True,
    ) -> TimersPublisher:
        """Publish to ``topic``: with its ``publish``, or as a decorator what the handler returns. Raises Invalid."""
        check_topic(topic)
        config: Any = self.config
        spec = TimersPublisherSpecConfig(
            topic=topic, schema_=schema_, title_=title_, description_=description_, include_in_schema=include_in_schema
        )
        publisher = TimersPublisher(
            TimersPublisherConfig(_outer_config=config, topic=topic),
            TimersPublisherSpecification(_outer_config=config, specification_config=spec),
        )
        super().publisher(publisher)
        return publisher
